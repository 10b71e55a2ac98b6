package notice

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opened(t *testing.T) *Notices {
	t.Helper()
	n, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func hears(t *testing.T, n *Notices, what string, within time.Duration) {
	t.Helper()
	select {
	case <-n.Heard():
	case <-time.After(within):
		t.Errorf("%s: nothing was heard", what)
	}
}

func TestAFileThatChangesIsHeard(t *testing.T) {
	n, file := opened(t), filepath.Join(t.TempDir(), "memory.events")
	if err := n.Changes(file); err == nil {
		t.Error("a file that is not there is watched")
	}
	write := func() {
		if err := os.WriteFile(file, []byte("max 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := n.Changes(file); err != nil {
		t.Fatal(err)
	}
	write()
	hears(t, n, "it changed", 30*time.Second)
}

// The numbers of what is armed come and go, and an event may be older than that.
func TestWhatHasTheNumberOfAClosedDescriptorIsNotRead(t *testing.T) {
	n := opened(t)
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, err := unix.Write(pipe[1], []byte("another's")); err != nil {
		t.Fatal(err)
	}
	n.take(pipe[0], unix.EPOLLIN)
	got := make([]byte, 64)
	if c, err := unix.Read(pipe[0], got); err != nil || string(got[:c]) != "another's" {
		t.Errorf("%q is left, %v", got[:max(c, 0)], err)
	}
}

func TestATriggerOfPressureIsTakenWhereTheKernelHasThem(t *testing.T) {
	n := opened(t)
	if err := n.Stalls(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has a trigger")
	}
	const file = "/proc/pressure/memory"
	if f, err := os.OpenFile(file, os.O_RDWR, 0); err != nil {
		t.Skip("the kernel counts no pressure: ", err)
	} else {
		_ = f.Close()
	}
	if err := n.Stalls(file); err != nil {
		t.Error(err)
	}
}

// cgroupV1 is a cgroup of the test's own whose memory is counted.
func cgroupV1(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/memory", "polylet-notice-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no cgroup of version 1 can be made here: ", err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(dir, "memory.force_empty"), []byte("0"), 0)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestACgroupWhoseUsageCrossesALevelIsHeardAtOnce(t *testing.T) {
	dir, n := cgroupV1(t), opened(t)
	const mi = 1 << 20
	for range 3 { // Again is as once.
		if err := n.Arm([]Level{{dir, 64 * mi}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Arm([]Level{{dir, 16 * mi}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.Heard():
		t.Error("it was heard before")
	default:
	}
	// This process is charged there for what it writes meanwhile: pages of a memory file.
	leave, err := enter(dir)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("ballast", 0)
	if err == nil {
		_, err = unix.Write(fd, make([]byte, 32*mi))
	}
	leave()
	if err != nil {
		t.Fatal(err)
	}
	hears(t, n, "the level was crossed", 30*time.Second)
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := n.Arm([]Level{{filepath.Join(dir, "none"), 1}}); err == nil {
		t.Error("a cgroup that is not there is followed")
	}
}

// enter moves this process into a cgroup; leave moves it back.
func enter(dir string) (leave func(), err error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	before, err := memoryCgroup(string(data))
	if err != nil {
		return nil, err
	}
	move := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	}
	return func() { _ = move(filepath.Join("/sys/fs/cgroup/memory", before)) }, move(dir)
}

func memoryCgroup(file string) (string, error) {
	for line := range strings.Lines(file) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			return parts[2], nil
		}
	}
	return "", errors.New("this process is in no cgroup of memory")
}

// As those of a hard and of a soft threshold of memory are.
func TestTwoLevelsOfOneCgroupAreArmedOnce(t *testing.T) {
	dir, n := cgroupV1(t), opened(t)
	levels := []Level{{dir, 64 << 20}, {dir, 32 << 20}}
	arm := func(levels []Level) int {
		if err := n.Arm(levels); err != nil {
			t.Fatal(err)
		}
		return n.levels
	}
	first := arm(levels)
	for range 10 {
		if arm(levels) != first {
			t.Fatal("armed anew though nothing moved")
		}
	}
	if levels[1].Bytes = 48 << 20; arm(levels) == first {
		t.Error("the second has moved, and is not armed anew")
	}
}
