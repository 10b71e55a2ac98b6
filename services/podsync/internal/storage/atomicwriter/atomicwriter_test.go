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
