package fsatomic

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestWriteFileReplacesAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, content := range []string{"old", "new and longer", ""} {
		if err := WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestWriteFileThatFailsKeepsTheOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	failing := errors.New("no")
	err := write(path, []byte("new"), 0o600, func(*os.File) error { return failing })
	if !errors.Is(err, failing) || !strings.Contains(err.Error(), path) {
		t.Fatalf("err = %v", err)
	}
	got, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if string(got) != "old" || len(entries) != 1 {
		t.Fatalf("content %q, entries %v", got, entries)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "f"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing directory: %v", err)
	}
}

type state struct {
	Names []string       `json:"names"`
	Count map[string]int `json:"count,omitempty"`
}

func TestCheckpointComesBackAsWritten(t *testing.T) {
	c := NewCheckpoint[state](filepath.Join(t.TempDir(), "state.json"))
	if _, err := c.Read(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("before the first write: %v", err)
	}
	want := state{Names: []string{"<a>", "é&"}, Count: map[string]int{"x": 1}}
	if err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	got, err := c.Read()
	if err != nil || got.Names[0] != "<a>" || got.Names[1] != "é&" || got.Count["x"] != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := errors.Join(c.Remove(), c.Remove()); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedCheckpointIsSetAsideAndNamed(t *testing.T) {
	good := func() []byte {
		dir := t.TempDir()
		path := filepath.Join(dir, "s")
		if err := NewCheckpoint[state](path).Write(state{Names: []string{"one"}}); err != nil {
			t.Fatal(err)
		}
		raw, _ := os.ReadFile(path)
		return raw
	}()
	for name, raw := range map[string][]byte{
		"empty":     {},
		"truncated": good[:len(good)/2],
		"flipped":   bytes.Replace(good, []byte("one"), []byte("two"), 1),
		"other":     []byte(`{"foo":1}`),
		"binary":    {0, 1, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			c := NewCheckpoint[state](path)
			_, err := c.Read()
			var damaged *DamagedError
			if !errors.As(err, &damaged) {
				t.Fatalf("err = %v", err)
			}
			kept, readErr := os.ReadFile(damaged.SetAside)
			if readErr != nil || !bytes.Equal(kept, raw) {
				t.Fatalf("set aside %q: %v", kept, readErr)
			}
			for _, want := range []string{path, damaged.SetAside, "rebuilt"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if _, err := c.Read(); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("second read: %v", err)
			}
		})
	}
}

func TestWhatIsNoFileIsSetAsideAndNothingWaitsForIt(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"an empty directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a full directory":   func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o755) },
		"a pipe":             func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a loop":             func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			c := NewCheckpoint[state](path)
			_, err := c.Read()
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.SetAside == "" || !IsAside(damaged.SetAside) {
				t.Fatalf("read: %v", err)
			}
			if _, err := os.Lstat(damaged.SetAside); err != nil {
				t.Errorf("set aside: %v", err)
			}
			if err := c.Write(state{Names: []string{"one"}}); err != nil {
				t.Fatalf("rebuild: %v", err)
			}
			if got, err := c.Read(); err != nil || len(got.Names) != 1 {
				t.Errorf("rebuilt as %+v, %v", got, err)
			}
		})
	}
}

func TestADirectoryThatTakesTheFilesPlaceMeanwhileDoesNotStopWrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("it holds %q, %v", got, err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 || !IsAside(entries[1].Name()) {
		t.Errorf("left are %v", entries)
	}
}

func TestWhatCutShortWritesLeftIsRemovedByTheNextLife(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s[1].json")
	for _, name := range []string{".s[1].json.tmp-123", ".s[1].json.tmp-9", ".other.tmp-1", "mine.tmp-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewCheckpoint[state](path).Read(); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("left are %v, want the files of others", entries)
	}
	Clean(dir, "*")
	if entries, _ = os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left are %v", entries)
	}
}

func TestTheNewestFilesAreKeptAndOthersOfTheDirectoryLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with [brackets]")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for i, name := range []string{"bad-c", "bad-a", "good", "bad-b"} { // in the order of their times, not of their names
		when := time.Unix(int64(1000+i), 0)
		if err := errors.Join(os.WriteFile(at(name), nil, 0o600), os.Chtimes(at(name), when, when)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := Oldest(dir, "bad-*"), []string{at("bad-c"), at("bad-a"), at("bad-b")}; !slices.Equal(got, want) {
		t.Errorf("the oldest first: %q", got)
	}
	KeepNewest(dir, "bad-*", 5)
	KeepNewest(dir, "bad-*", 2)
	if got, want := Oldest(dir, "*"), []string{at("bad-a"), at("good"), at("bad-b")}; !slices.Equal(got, want) {
		t.Errorf("kept: %q", got)
	}
}

func TestAFullDiskIsAnErrorThatKeepsTheOldStateAndLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	c := NewCheckpoint[state](filepath.Join(dir, "s"))
	if err := c.Write(state{Names: []string{"one"}}); err != nil {
		t.Fatal(err)
	}
	err := c.Write(state{Names: []string{strings.Repeat("x", 128<<10)}})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), filepath.Join(dir, "s")) {
		t.Errorf("write on a full disk: %v", err)
	}
	if got, err := c.Read(); err != nil || got.Names[0] != "one" {
		t.Errorf("afterwards it holds %+v, %v", got, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left are %v", entries)
	}
}

func FuzzCheckpointDecodeNeverBelievesOtherBytes(f *testing.F) {
	f.Add([]byte(`{"checksum":"sha256:00","data":{}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decode[state](raw); err == nil && !bytes.Contains(raw, []byte("sha256:")) {
			t.Fatalf("believed %q", raw)
		}
	})
}

// A process without descriptors left, or a disk that answers again, has not damaged
// anything.
func TestACheckpointThatCannotBeReadForAWhileIsNotSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		fails int
		want  string // of the error; empty when it is read
	}{
		"no descriptors for a while": {syscall.EMFILE, mostReads - 1, ""},
		"the disk for a moment":      {syscall.EIO, 1, ""},
		"the disk for good":          {syscall.EIO, 1 << 20, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "state")
				kept := NewCheckpoint[string](path)
				if err := kept.Write("good"); err != nil {
					t.Fatal(err)
				}
				reads := 0
				kept.read = func(path string) ([]byte, error) {
					if reads++; reads <= c.fails {
						return nil, &os.PathError{Op: "open", Path: path, Err: c.cause}
					}
					return readRegular(path)
				}
				got, err := kept.Read()
				if c.want == "" {
					if aside, _ := Asides(path); err != nil || got != "good" || len(aside) > 0 {
						t.Errorf("%q, %v, aside %v", got, err, aside)
					}
					return
				}
				var damaged *DamagedError
				if !errors.As(err, &damaged) || !damaged.Unread || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "is damaged") {
					t.Fatalf("%v", err)
				}
				if data, err := os.ReadFile(damaged.SetAside); err != nil || !strings.Contains(string(data), "good") {
					t.Errorf("what is set aside: %s, %v", data, err)
				}
			})
		})
	}
}

func TestADamagedCheckpointIsNotReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, reads := NewCheckpoint[string](path), 0
	kept.read = func(path string) ([]byte, error) { reads++; return readRegular(path) }
	var damaged *DamagedError
	if _, err := kept.Read(); !errors.As(err, &damaged) || damaged.Unread || reads != 1 {
		t.Errorf("%v after %d reads", err, reads)
	}
}
