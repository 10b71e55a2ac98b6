package atomicwriter

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func of(pairs ...string) Payload {
	p := Payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = File{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return p
}

// visible reads what a container would see, by name.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		top := filepath.Join(dir, e.Name())
		real, err := filepath.EvalSymlinks(top)
		if err != nil {
			seen[e.Name()] = "dangling"
			continue
		}
		err = filepath.WalkDir(real, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(real, path)
			seen[filepath.Join(e.Name(), rel)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

func contents(p Payload) map[string]string {
	m := map[string]string{}
	for name, f := range p.cleaned() {
		m[name] = string(f.Data)
	}
	return m
}

func versions(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if isVersion(e.Name()) {
			n++
		}
	}
	return n
}

func TestAPayloadReplacesTheOneBefore(t *testing.T) {
	dir := t.TempDir()
	for i, p := range []Payload{
		of("a", "1", "d/x", "2", "d/e/y", "3"),
		of("a", "1b", "d/x", "2"),
		of("z//q", "5"),
		{},
		of("a", ""),
	} {
		changed, err := Writer{Dir: dir}.Write(p)
		if err != nil || !changed {
			t.Fatalf("write %d: changed %v, %v", i, changed, err)
		}
		if got, want := visible(t, dir), contents(p); !maps.Equal(got, want) {
			t.Errorf("write %d: seen %v, want %v", i, got, want)
		}
		if n := versions(t, dir); n != 1 {
			t.Errorf("write %d left %d directories", i, n)
		}
	}
}

func TestTheSamePayloadTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	p := of("a", "1", "d/x", "2")
	w := Writer{Dir: dir}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Readlink(filepath.Join(dir, dataLink))
	w.step = func(name string) error { return fmt.Errorf("step %q was taken", name) }
	if changed, err := w.Write(p); err != nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	if after, _ := os.Readlink(filepath.Join(dir, dataLink)); after != before {
		t.Errorf("..data moved from %s to %s", before, after)
	}
}

func TestModesAreExactWhateverTheUmask(t *testing.T) {
	dir := t.TempDir()
	p := Payload{"a": {Mode: 0o777}, "b/c": {Mode: 0o400, Data: []byte("x")}}
	if _, err := (Writer{Dir: dir}).Write(p); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"a": 0o777, "b/c": 0o400, "b": 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info, err, want)
		}
	}
}

var errCrash = errors.New("crash")

// crashAt fails the n-th step.
func crashAt(n int) func(string) error {
	return func(string) error {
		n--
		if n < 0 {
			return errCrash
		}
		return nil
	}
}

func TestACrashAtAnyStepShowsOldOrNewAndIsCleanedUp(t *testing.T) {
	before, after := of("a", "old", "gone", "old", "d/x", "old"), of("a", "new", "fresh", "new", "d/x", "new")
	for n := 0; ; n++ {
		dir := t.TempDir()
		if _, err := (Writer{Dir: dir}).Write(before); err != nil {
			t.Fatal(err)
		}
		_, err := Writer{Dir: dir, step: crashAt(n), Finish: func(string) error { return nil }}.Write(after)
		if err == nil {
			if n < 8 {
				t.Fatalf("only %d steps were seen", n)
			}
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		seen := visible(t, dir)
		if seen["a"] != seen["d/x"] || (seen["a"] != "old" && seen["a"] != "new") {
			t.Errorf("crash at step %d: a mix is seen: %v", n, seen)
		}
		if _, err := (Writer{Dir: dir}).Write(after); err != nil {
			t.Fatalf("after the crash at step %d: %v", n, err)
		}
		if got := visible(t, dir); !maps.Equal(got, contents(after)) {
			t.Errorf("after the crash at step %d and another write: %v", n, got)
		}
		if v := versions(t, dir); v != 1 {
			t.Errorf("the crash at step %d left %d directories for good", n, v)
		}
	}
}

func TestAReaderNeverSeesAMix(t *testing.T) {
	dir := t.TempDir()
	if _, err := (Writer{Dir: dir}).Write(of("a", "0", "b", "0")); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			version, err := os.Readlink(filepath.Join(dir, dataLink))
			if err != nil {
				t.Errorf("..data vanished: %v", err)
				return
			}
			a, errA := os.ReadFile(filepath.Join(dir, version, "a"))
			b, errB := os.ReadFile(filepath.Join(dir, version, "b"))
			if errA != nil || errB != nil {
				continue // replaced and removed meanwhile
			}
			if string(a) != string(b) {
				t.Errorf("a = %s, b = %s", a, b)
				return
			}
		}
	})
	for i := range 200 {
		v := fmt.Sprint(i)
		if _, err := (Writer{Dir: dir}).Write(of("a", v, "b", v)); err != nil {
			t.Fatal(err)
		}
	}
	done.Store(true)
	wg.Wait()
}

func TestPlantedSymlinksAreNotFollowed(t *testing.T) {
	for _, planted := range []string{dataLink, newLink, "a", "..2020_01_01_00_00_00.x"} {
		dir, err := besidePlanted(t, planted, func(dir string, p Payload) error {
			_, err := (Writer{Dir: dir}).Write(p)
			return err
		})
		if err != nil {
			t.Errorf("%s planted: %v", planted, err)
		}
		if got := visible(t, dir)["a"]; got != "ours" {
			t.Errorf("%s planted: a = %q", planted, got)
		}
	}
}

// besidePlanted has a payload written into a directory in which a container has planted a
// link, and says what came of it outside.
func besidePlanted(t *testing.T, planted string, write func(dir string, p Payload) error) (dir string, harm error) {
	t.Helper()
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "a")
	if err := os.WriteFile(secret, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, planted)); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, of("a", "ours")); err != nil {
		return dir, err
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "mine" {
		return dir, fmt.Errorf("the file outside became %q, %w", data, err)
	}
	return dir, nil
}

// TestAWriterThatGoesByThePlantedLinkIsCaught, as the kubelet's of CVE-2017-1002102: it
// removes what the link of the payload before leads to.
func TestAWriterThatGoesByThePlantedLinkIsCaught(t *testing.T) {
	_, err := besidePlanted(t, dataLink, func(dir string, _ Payload) error {
		before, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
		return errors.Join(err, os.RemoveAll(before))
	})
	if err == nil || !strings.Contains(err.Error(), "the file outside became") {
		t.Errorf("err = %v", err)
	}
}

// TestWritingTakesAsLongAsItsPathsAreLong, and not as their square: that would be minutes.
func TestWritingTakesAsLongAsItsPathsAreLong(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "polylet-atomicwriter-") // a disk takes its time
	if err != nil {
		t.Skipf("it needs a directory in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := Payload{}
	for i := range 3 {
		p[fmt.Sprintf("d/%d/", i)+strings.Repeat("d/", 2000)+"f"] = File{Data: []byte{byte(i)}, Mode: 0o644}
	}
	began := time.Now()
	for again := range 2 {
		if changed, err := (Writer{Dir: dir}).Write(p); err != nil || changed != (again == 0) {
			t.Fatalf("changed %v, %.300v", changed, err)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

func TestWhatIsNotOfThePayloadInItIsNotThereAfterAnotherWrite(t *testing.T) {
	p := of("a-b/x", "1", "a/x", "2", "a/b/y", "3", "a.", "4", "z", "5")
	for name, spoil := range map[string]func(version string) error{
		"a file beside": func(v string) error { return os.WriteFile(filepath.Join(v, "a/other"), nil, 0o644) },
		"a file in another": func(v string) error {
			return errors.Join(os.MkdirAll(filepath.Join(v, "a/b/c/d"), 0o755), os.WriteFile(filepath.Join(v, "a/b/c/d/e"), nil, 0o644))
		},
		"a file is missing":    func(v string) error { return os.Remove(filepath.Join(v, "a-b/x")) },
		"a directory is gone":  func(v string) error { return os.RemoveAll(filepath.Join(v, "a/b")) },
		"other content":        func(v string) error { return os.WriteFile(filepath.Join(v, "z"), []byte("6"), 0o644) },
		"a link for a file":    func(v string) error { return replaced(os.Symlink("a.", filepath.Join(v, "z.")), v, "z") },
		"a link for directory": func(v string) error { return replaced(os.Symlink("a", filepath.Join(v, "a-b.")), v, "a-b") },
		"a directory for file": func(v string) error { return replaced(os.Mkdir(filepath.Join(v, "a.."), 0o755), v, "a.") },
		"a file for directory": func(v string) error { return replaced(os.WriteFile(filepath.Join(v, "a/b."), nil, 0o644), v, "a/b") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := (Writer{Dir: dir}).Write(p); err != nil {
				t.Fatal(err)
			}
			version, err := os.Readlink(filepath.Join(dir, dataLink))
			if err := errors.Join(err, spoil(filepath.Join(dir, version))); err != nil {
				t.Fatal(err)
			}
			if changed, err := (Writer{Dir: dir}).Write(p); err != nil || !changed {
				t.Errorf("changed %v, %v", changed, err)
			}
			if got, want := visible(t, dir), contents(p); !maps.Equal(got, want) {
				t.Errorf("seen is %v, want %v", got, want)
			}
			if changed, err := (Writer{Dir: dir}).Write(p); err != nil || changed {
				t.Errorf("once more: changed %v, %v", changed, err)
			}
		})
	}
}

// TestADirectoryThatSomebodyMountsOnStays: a container may have it made in the volume, and what is
// mounted on it would go with it.
func TestADirectoryThatSomebodyMountsOnStays(t *testing.T) {
	dir, p := t.TempDir(), of("a/x", "1")
	if _, err := (Writer{Dir: dir}).Write(p); err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(dir, "a/b/c")
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if changed, err := (Writer{Dir: dir}).Write(p); err != nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	if _, err := os.Stat(point); err != nil {
		t.Error(err)
	}
}

// replaced puts what was made beside a name, with a dot behind it, in its place.
func replaced(made error, dir, name string) error {
	at := filepath.Join(dir, name)
	return errors.Join(made, os.RemoveAll(at), os.Rename(at+".", at))
}

func TestTheDirectoriesOfAPayloadAreCountedOnce(t *testing.T) {
	for _, c := range []struct {
		want  int
		names []string
	}{
		{0, nil}, {0, []string{"a", "b"}}, {1, []string{"a/x", "a/y", "a-b"}}, {3, []string{"a/b/x", "a/c/x", "a//b/y"}},
		{4, []string{"a/x", "a-b/x", "a.b/x", "a/b/x"}}, {5, []string{"ab/cd/x", "ab/ce/x", "a/cd/x"}},
	} {
		p := Payload{}
		for _, name := range c.names {
			p[name] = File{}
		}
		if got := p.Directories(); got != c.want {
			t.Errorf("%q: %d, want %d", c.names, got, c.want)
		}
	}
}

func TestBadPathsAreRefused(t *testing.T) {
	for _, name := range []string{
		"", "/a", "..", "../a", "a/../b", "a/..", "..a", "..data/x", "./../a", "a\x00b", ".", "./", "a/./../..",
		strings.Repeat("x", 256), strings.Repeat("x/", 2049) + "y",
	} {
		if err := (Payload{name: {}}).Validate(); err == nil {
			t.Errorf("%.30q was accepted", name)
		}
	}
	if err := of("a", "1", "a/b", "2").Validate(); err == nil {
		t.Error("a file that is a directory too was accepted")
	}
	for _, name := range []string{"a", ".a", "a..b", "a/..b", "a/b.c/…", strings.Repeat("x", 255)} {
		if err := (Payload{name: {}}).Validate(); err != nil {
			t.Errorf("%.30q: %v", name, err)
		}
	}
}

func FuzzAPayloadStaysInItsDirectory(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../x", "..data", "a/../../x", "/etc/x", "./.", "a//b", "\x00", "..2026/x"} {
		f.Add(s, "other")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		base := t.TempDir()
		dir := filepath.Join(base, "volume")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		p := of(one, "1", two, "2")
		if len(p) == 2 && strings.TrimSuffix(one, "/") == strings.TrimSuffix(two, "/") {
			return
		}
		changed, err := Writer{Dir: dir}.Write(p)
		entries, _ := os.ReadDir(base)
		if len(entries) != 1 {
			t.Fatalf("%q, %q made %v beside the volume", one, two, entries)
		}
		if err != nil {
			return
		}
		if !changed {
			t.Fatalf("%q, %q: accepted but not written", one, two)
		}
		if got := visible(t, dir); !maps.Equal(got, contents(p)) {
			t.Fatalf("%q, %q: %v is seen", one, two, got)
		}
	})
}
