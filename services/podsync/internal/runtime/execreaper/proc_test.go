package execreaper

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

// pretend is a "container" of real processes: those of the POSIX sessions that
// the test has started. The test is their parent outside, as in the host's PID
// namespace.
type pretend struct {
	t   *testing.T
	mu  sync.Mutex
	sid map[int]bool
}

func (c *pretend) host() Procfs {
	return Procfs{Member: func(pid int, id string) bool {
		p, err := Procfs{}.stat(pid)
		c.mu.Lock()
		defer c.mu.Unlock()
		return id == "c" && err == nil && c.sid[p.SID]
	}}
}

// container is one container's processes with their commands.
func (f Procfs) container(id string) ([]Process, error) {
	all, err := f.Containers([]string{id})
	f.Commands(all[id])
	return all[id], err
}

// start runs a command that says a line when it is ready, in the container.
func (c *pretend) start(argv ...string) (cmd *exec.Cmd, line string) {
	c.t.Helper()
	cmd = exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sid[cmd.Process.Pid] = true
	return cmd, strings.TrimSpace(line)
}

// newPretend has its own first process, of an earlier tick than what follows.
func newPretend(t *testing.T) *pretend {
	c := &pretend{t: t, sid: map[int]bool{}}
	// Who runs the tests may ignore hangups (nohup), and what they start would, too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	cmd, _ := c.start("sh", "-c", "echo ready; exec sleep 1000")
	first, err := Procfs{}.stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for now() <= first.Start { //nolint:revive // it is 10 ms at most
	}
	return c
}

// book judges at once and is in no doubt about when it started.
func (c *pretend) book() *Book {
	b := New(Deps{Host: c.host()})
	b.moment, b.grace = time.Millisecond, 100*time.Millisecond
	close(b.since)
	return b
}

func counted(b *Book) map[string]int {
	out := map[string]int{}
	for _, result := range []string{"ended", "hungup", "killed", "failed"} {
		if n := int(testutil.ToFloat64(b.count.WithLabelValues(result))); n > 0 {
			out[result] = n
		}
	}
	return out
}

func TestACommandThatWasLeftEndsOnHangup(t *testing.T) {
	c := newPretend(t)
	b := c.book()
	b.grace = grace // they need time to end on a busy machine
	argv := []string{"sh", "-c", "echo ready; sleep 1000; echo over"}
	h := b.Begin("c", argv)
	cmd, _ := c.start(argv...)
	h.Left(t.Context())
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ended is looked at
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGHUP {
		t.Errorf("the command ended with %v", cmd.ProcessState)
	}
	if got := counted(b); len(got) != 1 || got["hungup"] != 1 {
		t.Errorf("counted %v", got)
	}
	all, err := c.host().container("c")
	all = slices.DeleteFunc(all, func(p Process) bool { return p.Zombie })
	if err != nil || len(all) != 1 {
		t.Errorf("%v; in the container are %+v, want its first process", err, all)
	}
}

func TestACommandThatIgnoresTheHangupIsKilledAndItsDaemonStays(t *testing.T) {
	c := newPretend(t)
	b := c.book()
	// The shell takes no notice; its first child is told to ignore it too, as
	// nohup does, its second is not.
	argv := []string{"sh", "-c", `trap "" HUP; sleep 1001 & d=$!; (trap - HUP; exec sh -c 'trap : HUP; while :; do sleep 1002; done') & echo $d; wait; wait; wait`}
	h := b.Begin("c", argv)
	cmd, line := c.start(argv...)
	daemon, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
	h.Left(t.Context())
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ended is looked at
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGKILL {
		t.Errorf("the command ended with %v", cmd.ProcessState)
	}
	if got := counted(b); len(got) != 1 || got["killed"] != 1 {
		t.Errorf("counted %v", got)
	}
	if p, err := (Procfs{}).stat(daemon); err != nil || p.Zombie {
		t.Errorf("the daemon is gone: %+v %v", p, err)
	}
}

func TestWhatACommandStartedEndsThoughTheCommandWasFaster(t *testing.T) {
	c := newPretend(t)
	b := c.book()
	b.grace = grace // they need time to end on a busy machine
	argv := []string{"sh", "-c", "sleep 1004 & echo $!; wait"}
	h := b.Begin("c", argv)
	cmd, line := c.start(argv...)
	h.Left(t.Context())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := (Procfs{}).stat(child); err == nil && !p.Zombie {
		t.Errorf("the command's child is left: %+v", p)
	}
}

func TestAProcessIsNotSignalledForAnother(t *testing.T) {
	c := newPretend(t)
	cmd, _ := c.start("sh", "-c", "echo ready; exec sleep 1003")
	p, err := Procfs{}.stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := p
	other.Start++
	for _, test := range []struct {
		name      string
		container string
		process   Process
		gone      bool
	}{
		{"that had its number once", "c", other, true},
		{"in another container", "d", p, true},
		{"that it is", "c", p, false},
	} {
		gone, err := c.host().Signal(test.container, test.process, 0)
		if err != nil || gone != test.gone {
			t.Errorf("%s: gone is %v, %v", test.name, gone, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if gone, err := c.host().Signal("c", p, unix.SIGKILL); !gone || err != nil {
		t.Errorf("a process that has ended: gone is %v, %v", gone, err)
	}
}

func TestTheContainerOfAProcessIsReadFromItsCgroups(t *testing.T) {
	const id = "0123abcd"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"v2, cgroupfs":               {"0::/kubepods/burstable/podx/0123abcd\n", true},
		"v2, systemd":                {"0::/kubepods.slice/kubepods-podx.slice/cri-containerd-0123abcd.scope\n", true},
		"v2, below":                  {"0::/kubepods/podx/0123abcd/system.slice/a.service\n", true},
		"v2, seen from a namespace":  {"0::/../podx/0123abcd\n", true},
		"v1":                         {"12:pids:/kubepods/podx/0123abcd\n3:cpu,cpuacct:/kubepods/podx/0123abcd\n1:name=systemd:/x\n", true},
		"v1, one hierarchy":          {"12:pids:/\n3:cpu,cpuacct:/kubepods/podx/0123abcd/a\n", true},
		"another":                    {"0::/kubepods/podx/89ef\n", false},
		"a longer id":                {"0::/kubepods/podx/0123abcde\n", false},
		"CRI-O's monitor":            {"0::/kubepods.slice/crio-conmon-0123abcd.scope\n", false},
		"CRI-O":                      {"0::/kubepods.slice/crio-0123abcd.scope\n", true},
		"a service with such a name": {"0::/system.slice/x-0123abcd.service\n", false},
		"the root":                   {"0::/\n", false},
		"nonsense":                   {"0123abcd", false},
	} {
		if got := members([]byte(c.text), map[string]bool{"0123": true, id: true}); slices.Equal(got, []string{id}) != c.want || !c.want && len(got) > 0 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := members([]byte("0::/cri-containerd-a-b.scope/c\n"), map[string]bool{"a-b": true, "c": true, "b": true, "d": true}); !slices.Equal(got, []string{"a-b", "b", "c"}) {
		t.Errorf("one that is in several is in %v", got)
	}
	if members([]byte("0::/a//b\n1:x:/a-.scope\n"), map[string]bool{"": true}) != nil {
		t.Error("a container without an id has a process")
	}
}

func TestAProcessIsReadWhateverItIsCalled(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(name, rest string) string { return "7 (" + name + ") " + rest + " 0 0 0 0 0 0 0 0\n" }
	write("7/stat", stat("a) S 9 (b", "S 3 7 7 34816 7 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711"))
	write("7/status", "Name:\ta) S\nNSpid:\t7\t2\nSigIgn:\t0000000000000001\n")
	write("7/cmdline", "sh\x00-c\x00\x00")
	write("7/cgroup", "0::/kubepods/podx/c\n")
	write("3/status", "NSpid:\t3\n")
	write("6/stat", "6 (init) S 3 6 6 34816 6 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4700 0 0 0 0 0 0 0 0\n") // the container's own
	write("6/status", "NSpid:\t6\t1\n")
	write("6/cmdline", "init\x00")
	write("6/cgroup", "0::/kubepods/podx/c\n")
	write("8/cgroup", "0::/kubepods/podx/c\n") // has ended meanwhile
	write("self/cgroup", "0::/kubepods/podx/c\n")
	f := Procfs{Root: root}
	all, err := f.container("c")
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	p, first := all[0], all[1]
	if p.PID == 6 {
		p, first = first, p
	}
	if first.PID != 6 || !first.First || first.Argv != nil {
		t.Errorf("%+v", first)
	}
	if p.PID != 7 || p.Parent != 3 || p.SID != 7 || p.Start != 4711 || p.Zombie || p.First || p.Level != 2 || p.ParentLevel != 1 || !slices.Equal(p.Argv, []string{"sh", "-c", ""}) {
		t.Errorf("%+v", p)
	}
	if !f.IgnoresHangup(7) || f.IgnoresHangup(3) {
		t.Error("who ignores SIGHUP is read wrongly")
	}
	if _, err := (Procfs{Root: root + "/nosuch"}).container("c"); err == nil {
		t.Error("a procfs that is not there has no error")
	}
}

func TestTheKernelsClockIsThatOfAProcesssStart(t *testing.T) {
	before := now()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	p, err := Procfs{}.stat(cmd.Process.Pid)
	if after := now(); err != nil || p.Start < before || p.Start > after {
		t.Errorf("started at %d, between %d and %d: %v", p.Start, before, after, err)
	}
	if level := (Procfs{}).Level(); level < 1 {
		t.Errorf("this process is at level %d", level)
	}
}
