package smallfiles

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/health"
)

// guarded runs a Guard over a directory of pods until the test ends.
func guarded(t *testing.T, pods string, deps Deps) *Guard {
	t.Helper()
	g := New(pods, deps)
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

// takes is how much of the disk a file may or does fill, by size or by blocks.
func takes(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		t.Fatal(err)
	}
	return max(st.Size, st.Blocks*blockBytes)
}

func small(t *testing.T, file string) { t.Helper(); smallerThan(t, file, Limit) }

func smallerThan(t *testing.T, file string, limit int64) {
	t.Helper()
	for range 600 {
		if takes(t, file) <= limit {
			return
		}
		time.Sleep(50 * time.Millisecond) // waits for another thread, on real files
	}
	t.Fatalf("%s takes %d bytes, want %d at most", file, takes(t, file), limit)
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
	g := guarded(t, pods, Deps{})
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
	guarded(t, pods, Deps{})
	small(t, file)
	grows(t, f)
	small(t, file)
}

func TestAFileThatGoesAndComesAgainIsGuarded(t *testing.T) {
	pods := t.TempDir()
	g := guarded(t, pods, Deps{})
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
	guarded(t, pods, Deps{})
	small(t, plain) // looked at after the link: names are sorted
	if info, err := os.Stat(other); err != nil || info.Size() <= Limit {
		t.Errorf("what the link points to was cut to %d bytes, %v", info.Size(), err)
	}
}

// fill takes space on the disk behind a file's end, as fallocate -n does. That
// this filesystem gives it is seen on a file that nobody guards.
func fill(t *testing.T, f *os.File, offset, bytes int64) {
	t.Helper()
	const taken = 1 << 20
	free, err := os.Create(filepath.Join(t.TempDir(), "free"))
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	if err := unix.Fallocate(int(free.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, taken); err != nil {
		t.Skipf("no space can be taken behind the end of a file of this filesystem: %v", err)
	}
	if got := takes(t, free.Name()); got < taken {
		t.Fatalf("%s takes %d bytes after %d were taken", free.Name(), got, taken)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, bytes); err != nil {
		t.Fatal(err)
	}
}

func TestAHostsFileThatIsGrownBehindItsEndIsCut(t *testing.T) {
	pods := t.TempDir()
	g := guarded(t, pods, Deps{})
	const content = "127.0.0.1 localhost\n"
	file := hostsOf(t, pods, "p", content)
	f := open(t, file)
	g.Watch(file)
	for _, offset := range []int64{0, 1 << 40} {
		fill(t, f, offset, 64<<20)
		small(t, file)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != content {
		t.Errorf("it holds %d bytes, %v; want its %d", len(raw), err, len(content))
	}
}

func TestATerminationLogStaysSmall(t *testing.T) {
	pods := t.TempDir()
	logOf := func(name string) string {
		file := filepath.Join(pods, "p", "containers", "c", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		return file
	}
	old := logOf("0a1b2c3d") // of a previous run
	grows(t, open(t, old))
	g := guarded(t, pods, Deps{})
	smallerThan(t, old, TerminationLimit)
	file := logOf("4e5f6a7b")
	g.Watch(file)
	f := open(t, file)
	grows(t, f)
	smallerThan(t, file, TerminationLimit)
	fill(t, f, 0, 64<<20)
	smallerThan(t, file, TerminationLimit)
}

// lacking is a kernel that refuses watchers, or else watches, until it is
// mended.
type lacking struct {
	Watcher
	watches bool
	mended  *atomic.Bool
}

func (l lacking) Add(file string) error {
	if l.watches && !l.mended.Load() {
		return syscall.ENOSPC
	}
	return l.Watcher.Add(file)
}

func (l lacking) new() (Watcher, error) {
	if !l.watches && !l.mended.Load() {
		return nil, syscall.EMFILE
	}
	var err error
	l.Watcher, err = inotify()
	return l, err
}

func TestWithoutInotifyTheFilesAreLookedAtByTime(t *testing.T) {
	for name, watches := range map[string]bool{"no watcher": false, "no watch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := t.TempDir()
			old := hostsOf(t, pods, "old", "")
			tracker := health.NewTracker(logr.Discard())
			l := lacking{watches: watches, mended: &atomic.Bool{}}
			g := guarded(t, pods, Deps{Health: tracker, NewWatcher: l.new})
			file := hostsOf(t, pods, "p", "127.0.0.1 localhost\n")
			g.Watch(file)
			for _, file := range []string{old, file} {
				grows(t, open(t, file))
				small(t, file)
			}
			if d := tracker.Dependencies(); len(d) != 1 || d[0].Ready || !strings.Contains(d[0].Message, "raise fs.inotify.max_user_") {
				t.Errorf("health shows %+v; want it to say what to raise", d)
			}
			l.mended.Store(true)
			deadline := time.Now().Add(30 * time.Second)
			for !tracker.Dependencies()[0].Ready {
				if time.Now().After(deadline) {
					t.Fatalf("health shows %+v after the kernel watches again", tracker.Dependencies())
				}
				time.Sleep(50 * time.Millisecond) // waits for another thread, on real files
			}
		})
	}
}
