package hostsguard

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// guarded runs a Guard over a directory of pods until the test ends.
func guarded(t *testing.T, pods string) *Guard {
	t.Helper()
	g := New(pods)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

func hostsOf(t *testing.T, pods, uid, content string) string {
	t.Helper()
	file := filepath.Join(pods, uid, "etc-hosts")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// grows is what a hostile container does: it writes far more than may stay, with
// a descriptor that it keeps.
func grows(t *testing.T, f *os.File) {
	t.Helper()
	junk := make([]byte, 1<<20)
	for range 8 {
		if _, err := f.Write(junk); err != nil {
			t.Fatal(err)
		}
	}
}

func small(t *testing.T, file string) {
	t.Helper()
	var size int64
	for range 600 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if size = info.Size(); size <= Limit {
			return
		}
		time.Sleep(50 * time.Millisecond) // waits for another thread, on real files
	}
	t.Fatalf("%s has %d bytes, want %d at most", file, size, Limit)
}

func open(t *testing.T, file string) *os.File {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAHostsFileStaysSmallHoweverOftenItIsFilled(t *testing.T) {
	pods := t.TempDir()
	g := guarded(t, pods)
	file := hostsOf(t, pods, "new", "127.0.0.1 localhost\n")
	g.Watch(file)
	f := open(t, file)
	for range 3 {
		grows(t, f)
		small(t, file)
	}
	head := make([]byte, 20)
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(head); err != nil || string(head) != "127.0.0.1 localhost\n" {
		t.Errorf("it begins with %q, %v: what stood first is to stay", head, err)
	}
}

func TestPodsOfAnEarlierLifeAreGuardedToo(t *testing.T) {
	pods := t.TempDir()
	file := hostsOf(t, pods, "old", "")
	f := open(t, file)
	grows(t, f) // while nobody was there
	guarded(t, pods)
	small(t, file)
	grows(t, f)
	small(t, file)
}

func TestAFileThatGoesAndComesAgainIsGuarded(t *testing.T) {
	pods := t.TempDir()
	g := guarded(t, pods)
	for range 2 {
		file := hostsOf(t, pods, "p", "")
		g.Watch(file)
		grows(t, open(t, file))
		small(t, file)
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		g.Watch(file) // gone already: no harm
	}
}

func TestALinkInPlaceOfTheFileIsNotFollowed(t *testing.T) {
	pods := t.TempDir()
	other := hostsOf(t, t.TempDir(), "other", "")
	grows(t, open(t, other))
	if err := os.MkdirAll(filepath.Join(pods, "p"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(pods, "p", "etc-hosts")); err != nil {
		t.Fatal(err)
	}
	plain := hostsOf(t, pods, "q", "")
	grows(t, open(t, plain))
	guarded(t, pods)
	small(t, plain) // looked at after the link: names are sorted
	if info, err := os.Stat(other); err != nil || info.Size() <= Limit {
		t.Errorf("what the link points to was cut to %d bytes, %v", info.Size(), err)
	}
}
