package nodelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/polylet/polylet/internal/rpcerr"
)

func ptr[T any](v T) *T { return &v }

// tree makes a log directory beside a secret that is not in it.
func tree(t testing.TB) *Dir {
	t.Helper()
	base := t.TempDir()
	root := filepath.Join(base, "log")
	for name, text := range map[string]string{
		"../secret": "secret", "syslog": "system", "foo.log": "foo", "bar/bar.log": "bar", "pods/ns_p_u/c/0.log": "pod",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"inside": "bar/bar.log", "absolute": root + "/pods/ns_p_u/c/0.log", "chain": "absolute", "up": "../log/syslog",
		"out": "../secret", "outabsolute": base + "/secret", "outdir": "..", "prefix": root + "x", "loop": "loop", "proc": "/proc/self/environ",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewDir(root)
}

func TestOnlyWhatIsBelowTheLogDirectoryIsRead(t *testing.T) {
	d := tree(t)
	for name, want := range map[string]string{
		"syslog": "system", "/syslog": "system", "bar/bar.log": "bar", "bar//./bar.log": "bar", "bar/../syslog": "system",
		"inside": "bar", "absolute": "pod", "chain": "pod",
	} {
		f, err := d.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
		f.Close()
	}
	for _, name := range []string{
		"../secret", "/../secret", "bar/../../secret", "..", "out", "outabsolute", "outdir/secret", "prefix", "up", "loop", "proc", "pipe", "nosuch",
		"syslog/x", "sys\x00log", "\\..\\secret",
	} {
		if f, err := d.Open(name); !errors.Is(err, rpcerr.ErrNotFound) {
			t.Errorf("%s: file %v, error %v; want not found", name, f, err)
		}
	}
	if _, err := d.Open("bar"); !errors.Is(err, rpcerr.ErrInvalid) {
		t.Errorf("a directory as a file: %v", err)
	}
}

func TestADirectoryIsListedInNameOrder(t *testing.T) {
	d := tree(t)
	self, entries, err := d.Stat("/")
	if err != nil || !self.Directory {
		t.Fatalf("%+v, %v", self, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "syslog") || len(names) != 15 {
		t.Errorf("entries %q", names)
	}
	if file, entries, err := d.Stat("foo.log"); err != nil || file.Size != 3 || file.Directory || entries != nil || file.Modified.IsZero() {
		t.Errorf("%+v %v %v", file, entries, err)
	}
	if _, _, err := NewDir(t.TempDir() + "/absent").Stat(""); err == nil {
		t.Error("a log directory that is not there is listed")
	}
}

func TestWhatMayBeAskedForIsAListOfWhatIsAllowed(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		q    Query
		want string // in the error; empty for none
	}{
		{"usual", Query{Services: []string{"kubelet", "systemd-journald.service", "getty@tty1.service", "a:b_c"}, TailLines: ptr(int32(0)), Boot: ptr(int32(-3)), Pattern: "a|b"}, ""},
		{"bounds", Query{Services: []string{"x"}, Since: now, Until: now, TailLines: ptr(int32(MostTailLines)), Boot: ptr(int32(0))}, ""},
		{"nothing", Query{}, "name a service"},
		{"five services", Query{Services: []string{"a", "b", "c", "d", "e"}}, "5 services are too many"},
		{"a shell's characters", Query{Services: []string{"a;reboot"}}, `"a;reboot"`},
		{"a path", Query{Services: []string{"../x"}}, `"../x"`},
		{"a directory", Query{Services: []string{".."}}, "names a directory"},
		{"a glob", Query{Services: []string{"*"}}, `"*"`},
		{"a line break", Query{Services: []string{"a\nb"}}, "allowed"},
		{"letters of another alphabet", Query{Services: []string{"ä"}}, "allowed"},
		{"a long name", Query{Services: []string{strings.Repeat("a", 257)}}, "257"},
		{"an empty name", Query{Services: []string{""}}, "not 0"},
		{"a wrong order", Query{Services: []string{"x"}, Since: now, Until: now.Add(-1)}, "untilTime"},
		{"too many lines", Query{Services: []string{"x"}, TailLines: ptr(int32(MostTailLines + 1))}, "tailLines"},
		{"fewer than no lines", Query{Services: []string{"x"}, TailLines: ptr(int32(-1))}, "tailLines"},
		{"a boot to come", Query{Services: []string{"x"}, Boot: ptr(int32(1))}, "boot"},
		{"no expression", Query{Services: []string{"x"}, Pattern: "("}, "pattern"},
		{"a long expression", Query{Services: []string{"x"}, Pattern: strings.Repeat("a", longestPattern+1)}, "pattern"},
	} {
		err := c.q.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTheQueryBecomesArgumentsOfJournalctl(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	q := Query{Since: at, Until: at.Add(time.Hour), TailLines: ptr(int32(7)), Boot: ptr(int32(-1)), Pattern: "--output=cat $(x)"}
	got := strings.Join(q.arguments([]string{"a", "-b"}), "|")
	const want = "--utc|--no-pager|--output=short-precise|--since=2026-01-02 02:04:05 UTC|--until=2026-01-02 03:04:05 UTC|" +
		"--pager-end|--lines=7|--unit=a|--unit=-b|--grep=--output=cat $(x)|--boot=-1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// journal knows some units and says what it was asked for.
func journal(units string) Program {
	return func(_ context.Context, args []string, out io.Writer) error {
		if slices.Contains(args, "--field=_SYSTEMD_UNIT") {
			_, err := io.WriteString(out, units)
			return err
		}
		for _, a := range args {
			if name, ok := strings.CutPrefix(a, "--unit="); ok {
				fmt.Fprintf(out, "journal of %s\n", name)
			}
		}
		return nil
	}
}

func noJournal(context.Context, []string, io.Writer) error {
	return errors.New("journalctl is not installed")
}

func TestAServicesLogComesFromTheJournalOrElseFromItsFile(t *testing.T) {
	d := tree(t)
	for _, c := range []struct {
		name    string
		journal Program
		q       Query
		want    string
	}{
		{"journal", journal("a.service\nb.socket\n"), Query{Services: []string{"a", "b.socket"}}, "journal of a\njournal of b.socket\n"},
		{"part of a unit's name is not the unit", journal("containerd.service\n"), Query{Services: []string{"container"}}, "log not found for container\n"},
		{"file of the name", noJournal, Query{Services: []string{"syslog"}}, "system"},
		{"file with .log", noJournal, Query{Services: []string{"foo"}}, "foo"},
		{"file in a directory", noJournal, Query{Services: []string{"bar"}}, "bar"},
		{"journal first", journal("a.service\n"), Query{Services: []string{"foo", "a"}}, "journal of a\nfoo"},
		{"link out of the directory", noJournal, Query{Services: []string{"out"}}, "log not found for out\n"},
		{"pipe", noJournal, Query{Services: []string{"pipe"}}, "log not found for pipe\n"},
		{"options need the journal", noJournal, Query{Services: []string{"foo"}, TailLines: ptr(int32(1))}, "options present and query resolved to log files for [foo]\ntry without specifying options\n"},
	} {
		var out bytes.Buffer
		if err := NewReader(d, c.journal).Query(t.Context(), c.q, &out); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, out.String(), err, c.want)
		}
	}
	if err := NewReader(d, nil).Query(t.Context(), Query{Services: []string{"a b"}}, io.Discard); !errors.Is(err, rpcerr.ErrInvalid) {
		t.Errorf("a query that is not allowed: %v", err)
	}
}

func TestAQueryEndsAfterHalfAMinuteAndFewRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, args []string, out io.Writer) error {
			if len(args) == 1 {
				return journal("a.service\n")(ctx, args, out)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		r := NewReader(NewDir(t.TempDir()), hangs)
		begin := time.Now()
		results := make(chan error, mostQueries)
		var out [mostQueries]bytes.Buffer
		for i := range mostQueries {
			go func() { results <- r.Query(t.Context(), Query{Services: []string{"a"}}, &out[i]) }()
		}
		synctest.Wait()
		if err := r.Query(t.Context(), Query{Services: []string{"a"}}, io.Discard); !errors.Is(err, rpcerr.ErrExhausted) {
			t.Errorf("one more: %v", err)
		}
		for range mostQueries {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != longestQuery || !strings.Contains(out[0].String(), "took longer than 30s") {
			t.Errorf("took %s, says %q", took, out[0].String())
		}
	})
}

// gone is a client that has left.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAClientThatLeftEndsTheQuery(t *testing.T) {
	err := NewReader(tree(t), journal("a.service\n")).Query(t.Context(), Query{Services: []string{"a", "foo"}}, gone{})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
}

// stuck is a client that takes nothing until the test ends.
type stuck struct {
	end   chan struct{}
	calls *atomic.Int32
}

func (s stuck) Write([]byte) (int, error) {
	s.calls.Add(1)
	<-s.end
	return 0, io.ErrClosedPipe
}

func TestAClientThatTakesNothingHoldsNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		// As os/exec does, which waits a second for who passes the output on.
		leaves := func(ctx context.Context, args []string, out io.Writer) error {
			if len(args) == 1 {
				return journal("a.service\n")(ctx, args, out)
			}
			go func() { _, _ = io.WriteString(out, "a line") }()
			<-ctx.Done()
			return exec.ErrWaitDelay
		}
		r := NewReader(NewDir(t.TempDir()), leaves)
		client := stuck{end, new(atomic.Int32)}
		done := make(chan error, 1)
		go func() { done <- r.Query(t.Context(), Query{Services: []string{"a"}}, client) }()
		time.Sleep(longestQuery + time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, rpcerr.ErrTimeout) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("the query goes on")
		}
		if n := client.calls.Load(); n != 1 {
			t.Errorf("%d write at once", n)
		}
		close(end)
	})
}

func TestTheHostsJournalctlIsKilledWithItsQuery(t *testing.T) {
	if _, err := exec.LookPath("journalctl"); err != nil {
		t.Skip("journalctl is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := journalctl(ctx, []string{"--version"}, &out); err != nil || !strings.Contains(out.String(), "systemd") {
		t.Errorf("%v %q", err, out.String())
	}
	done, stop := context.WithCancel(t.Context())
	stop()
	if err := journalctl(done, []string{"--follow"}, io.Discard); err == nil {
		t.Error("it went on after its context had ended")
	}
}

func FuzzAPathNeverLeavesTheLogDirectory(f *testing.F) {
	for _, seed := range []string{"", "/", "syslog", "../secret", "out", "outdir/secret", "outdir/log/syslog", "bar/../out", "chain", "loop/x", "a\x00b", "....//", "up"} {
		f.Add(seed)
	}
	d := tree(f)
	f.Fuzz(func(t *testing.T, name string) {
		file, err := d.Open(name)
		if err != nil {
			return
		}
		defer file.Close()
		if text, err := io.ReadAll(file); err != nil || strings.Contains(string(text), "secret") {
			t.Fatalf("%q shows %q, %v", name, text, err)
		}
	})
}

func FuzzAQueryThatPassesHasHarmlessArguments(f *testing.F) {
	f.Add("kubelet", "warn.*", int32(10), int32(0), int64(0), int64(1))
	f.Add("-x", "--file=/etc/shadow", int32(-1), int32(1), int64(5), int64(4))
	f.Add("a/../b", "", int32(10), int32(0), int64(0), int64(1))
	f.Add("../../etc/shadow", "", int32(10), int32(0), int64(0), int64(1))
	f.Add("..", "", int32(10), int32(0), int64(0), int64(1))
	f.Add("a/../b", "(", int32(100001), int32(-9), int64(-1), int64(1<<40))
	f.Fuzz(func(t *testing.T, service, pattern string, tail, boot int32, since, until int64) {
		q := Query{Services: []string{service}, Pattern: pattern, TailLines: &tail, Boot: &boot, Since: time.Unix(since, 0), Until: time.Unix(until, 0)}
		if q.Validate() != nil {
			return
		}
		for _, name := range candidates(service) {
			if !filepath.IsLocal(name) || filepath.Clean(name) != name {
				t.Fatalf("service %q would read %q", service, name)
			}
		}
		for _, arg := range q.arguments(q.Services) {
			option, _, _ := strings.Cut(arg, "=")
			if !slices.Contains([]string{"--utc", "--no-pager", "--output", "--since", "--until", "--pager-end", "--lines", "--unit", "--grep", "--boot"}, option) || strings.ContainsRune(arg, 0) {
				t.Fatalf("argument %q", arg)
			}
		}
	})
}

func TestADeviceAmongTheLogsIsNotOpened(t *testing.T) {
	d := tree(t)
	// Of no driver: who opens it is told so.
	if err := syscall.Mknod(filepath.Join(d.root, "device"), syscall.S_IFCHR|0o666, 250<<8|250); err != nil {
		t.Skipf("only root makes devices: %v", err)
	}
	if _, err := d.Open("device"); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") {
		t.Errorf("it was opened: %v", err)
	}
	if _, _, err := d.Stat("device"); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") {
		t.Errorf("it was opened: %v", err)
	}
}

func TestAFileWithANameThatIsNoTextHidesNoOther(t *testing.T) {
	d := tree(t)
	if err := os.WriteFile(filepath.Join(d.root, "a\xffb.log"), nil, 0o600); err != nil {
		t.Skipf("no such names here: %v", err)
	}
	_, entries, err := d.Stat("/")
	if err != nil || len(entries) < 4 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if !utf8.ValidString(e.Name) {
			t.Errorf("%q cannot be sent", e.Name)
		}
	}
}
