package inotify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a Watcher and a directory.
type bench struct {
	*Watcher
	t    *testing.T
	dir  string
	last int // of the names that are made at the end of something
}

func newBench(t *testing.T) *bench {
	t.Helper()
	w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return &bench{Watcher: w, t: t, dir: t.TempDir()}
}

func (b *bench) add(dir string, files bool) {
	b.t.Helper()
	if err := b.Add(dir, files); err != nil {
		b.t.Fatal(err)
	}
}

// does does something and returns the events of it: those that come before that of a name
// that is made afterwards.
func (b *bench) does(what func() error) (events []Event) {
	b.t.Helper()
	b.last++
	last := filepath.Join(b.dir, fmt.Sprintf("last %d", b.last))
	if err := errors.Join(what(), os.Mkdir(last, 0o700)); err != nil {
		b.t.Fatal(err)
	}
	for {
		select {
		case e := <-b.Events():
			if e.Path == last {
				return events
			}
			if !strings.HasPrefix(filepath.Base(e.Path), "last ") { // under another name
				events = append(events, e)
			}
		case err := <-b.Errors():
			b.t.Fatal(err)
		case <-time.After(30 * time.Second):
			b.t.Fatalf("after %v nothing more is told", events)
		}
	}
}

func TestWhatBecomesOfANameIsTold(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, true)
	file, outside := filepath.Join(b.dir, "file"), filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		name string
		do   func() error
		want []Event
	}{
		{"written", func() error { return os.WriteFile(file, []byte("x"), 0o600) }, []Event{{file, true}, {file, false}}},
		{"written again", func() error { return os.WriteFile(file, []byte("y"), 0o600) }, []Event{{file, false}}},
		{"its mode", func() error { return os.Chmod(file, 0o644) }, []Event{{file, false}}},
		{"read", func() error { _, err := os.ReadFile(file); return err }, nil},
		{"moved away", func() error { return os.Rename(file, outside) }, []Event{{file, true}}},
		{"moved there", func() error { return os.Rename(outside, file) }, []Event{{file, true}}},
		{"moved over it", func() error {
			return errors.Join(os.WriteFile(outside, nil, 0o600), os.Rename(outside, file))
		}, []Event{{file, true}}},
		{"removed", func() error { return os.Remove(file) }, []Event{{file, true}}},
		{"a link", func() error { return os.Symlink("x", file) }, []Event{{file, true}}},
	} {
		if got := b.does(c.do); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAFileThatStaysOpenIsNotToldOfAtEachWrite(t *testing.T) {
	b := newBench(t)
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b.add(b.dir, true)
	if got := b.does(func() error {
		for range 100 {
			if _, err := log.WriteString("a line\n"); err != nil {
				return err
			}
		}
		return nil
	}); len(got) > 0 {
		t.Errorf("told: %v", got)
	}
	if got := b.does(log.Close); !slices.Equal(got, []Event{{log.Name(), false}}) {
		t.Errorf("its end: %v", got)
	}
}

func TestWithoutFilesOnlyNamesAreTold(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, false)
	file := filepath.Join(b.dir, "file")
	write := func() error { return errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Chmod(file, 0o644)) }
	if got := b.does(write); !slices.Equal(got, []Event{{file, true}}) {
		t.Errorf("a new one: %v", got)
	}
	if got := b.does(write); len(got) > 0 {
		t.Errorf("one that was there: %v", got)
	}
	b.Remove(b.dir)
	b.add(b.dir, true)
	if got := b.does(write); !slices.Equal(got, []Event{{file, false}, {file, false}}) {
		t.Errorf("with files from now on: %v", got)
	}
}

func TestADirectoryThatGoesIsTold(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, true)
	dir := filepath.Join(b.dir, "below")
	for name, goes := range map[string]func() error{
		"removed": func() error { return os.Remove(dir) },
		"moved":   func() error { return os.Rename(dir, filepath.Join(t.TempDir(), "x")) },
	} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		b.add(dir, true)
		// Of its name, and of itself.
		if got := b.does(goes); len(slices.DeleteFunc(got, func(e Event) bool { return e != Event{dir, true} })) < 2 {
			t.Errorf("%s: %v", name, got)
		}
		b.Remove(dir)
	}
}

func TestADirectoryThatIsMovedIsToldWhereNobodyWatchesItsName(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, true)
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.add(dir, true)
	if got := b.does(func() error { return os.Rename(dir, dir+" moved") }); !slices.Equal(got, []Event{{dir, true}}) {
		t.Errorf("%v", got)
	}
}

func TestADirectoryOfTwoNamesTellsUnderBothUntilEachIsRemoved(t *testing.T) {
	b := newBench(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(b.dir, link); err != nil {
		t.Fatal(err)
	}
	b.add(b.dir, true)
	b.add(link, true)
	one, other := filepath.Join(b.dir, "file"), filepath.Join(link, "file")
	if got := b.does(func() error { return os.Mkdir(one, 0o700) }); !slices.Contains(got, Event{one, true}) || !slices.Contains(got, Event{other, true}) {
		t.Errorf("%v", got)
	}
	b.Remove(link)
	if got := b.does(func() error { return os.Remove(one) }); slices.Contains(got, Event{other, true}) || !slices.Contains(got, Event{one, true}) {
		t.Errorf("one of them: %v", got)
	}
}

func TestWhatCannotBeWatchedIsSaid(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{b.dir + "/none": fs.ErrNotExist, file: unix.ENOTDIR} {
		if err := b.Add(path, true); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Add(b.dir, true); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
	b.Remove(b.dir)
	if err := b.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// Whoever does not listen loses events, and hears that.
func TestEventsThatAreLostAreSaid(t *testing.T) {
	b := newBench(t)
	w := b.Watcher
	w.ended.Go(func() { w.lost(ErrLost) }) // as the kernel's queue has room for 16,384
	if err := <-b.Errors(); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	b.add(b.dir, true)
	if err := os.WriteFile(b.dir+"/nobody hears", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil { // returns all the same
		t.Error(err)
	}
	select {
	case err := <-b.Errors():
		t.Errorf("its end is an error: %v", err)
	default:
	}
}

func TestADirectoryThatIsAddedTwiceTellsOnceAndOfItsFilesAllTheSame(t *testing.T) {
	b := newBench(t)
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(b.dir, "file")
	if err := errors.Join(os.Symlink(b.dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.add(b.dir, true)
	b.add(b.dir, true)
	if got := b.does(func() error { return os.Remove(file) }); !slices.Equal(got, []Event{{file, true}}) {
		t.Errorf("added twice: %v", got)
	}
	b.add(link, false) // another asks for its names only
	if got := b.does(func() error { return os.WriteFile(file, []byte("x"), 0o600) }); !slices.Contains(got, Event{file, false}) {
		t.Errorf("whoever has asked for files is told: %v", got)
	}
}

func TestANameThatLeadsToAnotherDirectoryTellsOfThatOnly(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, true)
	one, two, link := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(one, 0o700), os.Mkdir(two, 0o700), os.Symlink(one, link)); err != nil {
		t.Fatal(err)
	}
	b.add(link, true)
	if err := errors.Join(os.Remove(link), os.Symlink(two, link)); err != nil {
		t.Fatal(err)
	}
	b.add(link, true)
	got := b.does(func() error { return errors.Join(os.Mkdir(one+"/a", 0o700), os.Mkdir(two+"/b", 0o700)) })
	if !slices.Equal(got, []Event{{link + "/b", true}}) {
		t.Errorf("%v", got)
	}
}

// The kernel tells of the end of a watch later than the name leads elsewhere.
func TestTheEndOfAWatchTakesNothingFromTheNextOfItsName(t *testing.T) {
	b := newBench(t)
	b.paths[1], b.paths[2], b.watch["name"], b.watch["gone"] = []string{"name", "gone"}, []string{"name"}, 2, 1
	if got := b.take(1, unix.IN_IGNORED); len(got) != 0 {
		t.Errorf("it is told of %v", got)
	}
	_, stays := b.paths[1]
	if _, goes := b.watch["gone"]; stays || goes || b.watch["name"] != 2 {
		t.Errorf("what is left: %v, %v", b.paths, b.watch)
	}
}

func TestThatTheKernelsQueueWasFullIsSaid(t *testing.T) {
	b := newBench(t)
	b.add(b.dir, false)
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	most, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, convErr); err != nil || most > 1<<16 {
		t.Skipf("the kernel's queue is too long to be filled: %d, %v", most, err)
	}
	name := filepath.Join(b.dir, "x")
	for range most/2 + 200 { // two events each, and what the Watcher has read already
		if err := errors.Join(os.Mkdir(name, 0o700), os.Remove(name)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		select {
		case <-b.Events():
		case err := <-b.Errors():
			if !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			return
		case <-time.After(30 * time.Second):
			t.Fatal("nothing more is told")
		}
	}
}

func TestNoProgramThatIsStartedHasTheWatcher(t *testing.T) {
	b := newBench(t)
	if flags, err := unix.FcntlInt(uintptr(b.fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("its descriptor has the flags %#x, %v", flags, err)
	}
}
