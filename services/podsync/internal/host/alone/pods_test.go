package alone

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/uds"
)

// with is this machine, on which a process runs in a pod.
func with(inPod int) machine {
	m := thisMachine()
	m.podOf = func(pid int) (string, error) {
		if pid == inPod {
			return "0::/kubepods/pod1/c", nil
		}
		return uds.PodOf(pid)
	}
	return m
}

// held returns a root directory whose lock a process holds that may not write to it.
// When it has only inherited that, the one that took it has ended.
func held(t *testing.T, inherited bool) (root string, holder *exec.Cmd) {
	t.Helper()
	root = t.TempDir()
	path := filepath.Join(root, "polylet", "lock")
	if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	script := `exec 9<"$0" && flock -n 9 && echo ready && exec sleep 1000`
	if !inherited { // the child closes it
		script = `exec flock -o -n "$0" sh -c "echo ready && exec sleep 1000"`
	}
	holder = exec.CommandContext(t.Context(), "sh", "-c", script, path)
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(holder) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return root, holder
}

func end(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = cmd.Wait()
}

func TestALockThatAPodHoldsKeepsNoAgentOut(t *testing.T) {
	for name, inherited := range map[string]bool{"taken": false, "inherited": true} {
		t.Run(name, func(t *testing.T) {
			root, holder := held(t, inherited)
			goesOn(t, root, holder)
		})
	}
}

func goesOn(t *testing.T, root string, holder *exec.Cmd) {
	t.Helper()
	const short = 100 * time.Millisecond // the kernel keeps no virtual time
	m := with(holder.Process.Pid)
	if _, err := thisMachine().hold(t.Context(), root, short); err == nil {
		t.Fatal("one who is in no pod does not keep an agent out")
	}
	release, err := m.hold(t.Context(), root, short)
	if err != nil {
		t.Fatalf("a pod keeps an agent out: %v", err)
	}
	// When the pod lets go, the agent has the lock.
	end(holder)
	path := filepath.Join(root, "polylet", "lock")
	for until := time.Now().Add(30 * time.Second); !free(t, path, false); {
		if time.Now().After(until) {
			t.Fatal("the agent has not taken the lock of the pod that is gone")
		}
		time.Sleep(10 * time.Millisecond)
	}
	release()
	for until := time.Now().Add(30 * time.Second); !free(t, path, true); {
		if time.Now().After(until) {
			t.Fatal("the lock is not given back")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// free says whether the lock is free, or is not, as wanted.
func free(t *testing.T, path string, want bool) bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return (unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil) == want
}

func TestAnAgentThatWaitsForAPodsLockKeepsASecondOneOut(t *testing.T) {
	root, holder := held(t, true)
	// The first has it open, as one that goes on without the lock.
	file, err := os.Open(filepath.Join(root, "polylet", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	first := exec.CommandContext(t.Context(), "sleep", "1000")
	first.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	first.ExtraFiles = []*os.File{file}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer end(first)
	if _, err := with(holder.Process.Pid).hold(t.Context(), root, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "another podsync") {
		t.Errorf("a second agent: %v", err)
	}
}

func TestASocketOfAPodIsNoKubelet(t *testing.T) {
	root, err := os.MkdirTemp("", "alone")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	path := filepath.Join(root, "pod-resources", "kubelet.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, m := range map[string]machine{
		"in a pod": {uds.PodOf, func(net.Conn) (string, bool, error) { return "0::/kubepods/pod1/c", false, nil }},
		"gone":     {uds.PodOf, func(net.Conn) (string, bool, error) { return "", true, nil }},
	} {
		release, err := m.hold(t.Context(), root, time.Second)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		release()
	}
}

func TestWhoHoldsALockIsReadFromTheKernelsList(t *testing.T) {
	file := unix.Stat_t{Dev: unix.Mkdev(8, 1), Ino: 42}
	for text, want := range map[string]bool{
		"1: FLOCK  ADVISORY  WRITE 961 08:01:42 0 EOF\n":     true,
		"1: POSIX  ADVISORY  WRITE 961 08:01:42 0 EOF\n":     false,
		"1: FLOCK  ADVISORY  WRITE 961 08:01:421 0 EOF\n":    false,
		"1: FLOCK  ADVISORY  WRITE 961 08:02:42 0 EOF\n":     false,
		"1: -> FLOCK  ADVISORY  WRITE 961 08:01:42 0 EOF\n":  false,
		"1: X\n2: FLOCK  ADVISORY  READ  961 08:01:42 0 EOF": true,
		"": false,
	} {
		if pid, got := holder(text, &file); got != want || got && pid != 961 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestALinkToASocketOfTheHostIsNoKubelet(t *testing.T) {
	root, err := os.MkdirTemp("", "alone")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	daemon := filepath.Join(root, "containerd.sock") // of the host, not the pod's
	l, err := net.Listen("unix", daemon)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Mkdir(filepath.Join(root, "pod-resources"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(daemon, filepath.Join(root, "pod-resources", "kubelet.sock")); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), root); err != nil {
		t.Errorf("a pod's link keeps the agent out: %v", err)
	}
}
