package uds

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAProcessOfAPodIsKnownByItsCgroup(t *testing.T) {
	const service = "0::/polylet.slice/polylet-podsync.service\n"
	for name, tc := range map[string]struct {
		theirs, own string
		pod         bool
	}{
		"cgroupfs":                          {"0::/kubepods/besteffort/pod1/c\n", service, true},
		"systemd":                           {"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-c.scope\n", service, true},
		"a cgroup root":                     {"0::/agent/kubepods/pod1/c\n", service, true},
		"a cgroup root with systemd":        {"0::/agent.slice/agent-kubepods.slice/x\n", service, true},
		"one hierarchy of v1":               {"3:cpu:/\n2:pids:/kubepods/pod1/c\n1:name=systemd:/\n", "3:cpu:/\n2:pids:/\n1:name=systemd:/\n", true},
		"no cgroups for pods, containerd":   {"0::/k8s.io/c\n", service, true},
		"no cgroups for pods, systemd":      {"0::/system.slice/cri-containerd-c.scope\n", service, true},
		"no cgroups for pods, cri-o":        {"0::/system.slice/crio-c.scope\n", service, true},
		"seen from a container":             {"0::/../../kubepods/burstable/pod1/c\n", "0::/\n", true},
		"a service":                         {"0::/polylet.slice/polylet-gateway.service\n", service, false},
		"a person":                          {"0::/user.slice/user-0.slice/session-1.scope\n", service, false},
		"a container of docker":             {"0::/docker/abc\n", "0::/docker/def\n", false},
		"a node in a pod, its service":      {"0::/kubepods/podA/c/gateway\n", "0::/kubepods/podA/c/podsync\n", false},
		"a node in a pod, a pod of its own": {"0::/kubepods/podA/c/kubepods/podB/d\n", "0::/kubepods/podA/c/podsync\n", true},
		"nothing known":                     {"", "", false},
	} {
		if got := podLine(tc.theirs, tc.own); (got != "") != tc.pod {
			t.Errorf("%s: %q, want pod %v", name, got, tc.pod)
		}
	}
}

func TestAPeerThatHasEndedIsNotTakenForItsSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The child connects and leaves; the connection stays in the queue.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperConnects$")
	cmd.Env = append(os.Environ(), "UDS_TEST_CONNECT="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := Credentials(false).ServerHandshake(conn); !errors.Is(err, errPeerGone) {
		t.Errorf("a peer that is gone: %v", err)
	}
}

// TestHelperConnects is the child of the test above.
func TestHelperConnects(t *testing.T) {
	path := os.Getenv("UDS_TEST_CONNECT")
	if path == "" {
		t.Skip("runs as a child only")
	}
	if _, err := net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
}

func TestAPeerThatNobodyWaitedForIsNotTakenForTheHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperConnects$")
	cmd.Env = append(os.Environ(), "UDS_TEST_CONNECT="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	// The end of its output is the child's end, or just before it; it stays a
	// zombie, which cgroup v1 shows at the root, until Wait.
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := Credentials(true).ServerHandshake(conn); !errors.Is(err, errPeerGone) {
		t.Errorf("a peer that has ended and nobody waited for: %v", err)
	}
}

func TestAProcessEndsByItsFlags(t *testing.T) {
	for stat, want := range map[string]bool{
		"7 (a) S 1 7 7 0 -1 4194560 ":    false,
		"7 (a) R 1 7 7 0 -1 4194564 ":    true,
		"7 (a) S 1 2) Z 1 7 7 0 -1 4 0 ": true,
		"7 (a) S 1 2 3) R 1 7 7 0 -1 0 ": false,
		"7 (a) S 1 7 7 0 -1 ":            true,
		"":                               true,
	} {
		if got := ends(stat); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

func TestAPeerThatProcHidesIsRefusedUnlessAskedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a /proc with hidepid")
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	// This process, root's, is the peer; the child serves, and may not see it.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperServesBlind$")
	cmd.Env = append(os.Environ(), "UDS_TEST_BLIND=1")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHelperServesBlind is the child of the test above.
func TestHelperServesBlind(t *testing.T) {
	if os.Getenv("UDS_TEST_BLIND") == "" {
		t.Skip("runs as a child only")
	}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, "hidepid=2"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		t.Fatal(err)
	}
	// The group root sees all that hidepid hides.
	if err := syscall.Setgid(60803); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setuid(60803); err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []bool{false, true} {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Credentials(hidden).ServerHandshake(conn); errors.Is(err, errPeerHidden) == hidden || hidden && err != nil {
			t.Errorf("hidden peers are taken: %v: %v", hidden, err)
		}
		_ = conn.Close()
	}
}

func TestPodsShareTheirConnectionsWhateverTheirNumbers(t *testing.T) {
	c := &connections{of: map[holder]int{}, most: 2}
	for uid := range uint32(2) {
		if _, err := c.add(nil, Peer{UID: uid, Pod: fmt.Sprintf("0::/kubepods/p%d", uid)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.add(nil, Peer{UID: 7, Pod: "0::/kubepods/q"}); err == nil {
		t.Error("another number of a pod has connections of its own")
	}
	if _, err := c.add(nil, Peer{}); err != nil {
		t.Errorf("root, on the host: %v", err)
	}
}

func TestAContainerLeavesConnectionsForOtherPods(t *testing.T) {
	c := &connections{of: map[holder]int{}, most: 64}
	one := Peer{Pod: "0::/kubepods/p"}
	var last net.Conn
	for i := range 8 {
		server, client := net.Pipe()
		defer client.Close()
		var err error
		if last, err = c.add(server, one); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := c.add(nil, one); err == nil {
		t.Error("a container has more than an eighth of the pods' connections")
	}
	if _, err := c.add(nil, Peer{Pod: "0::/kubepods/q"}); err != nil {
		t.Errorf("another pod: %v", err)
	}
	_ = last.Close()
	if _, err := c.add(nil, one); err != nil {
		t.Errorf("a connection that was closed still counts: %v", err)
	}
}

func TestWhoListensIsKnownToHaveEndedThoughItsChildServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := func() (string, bool, error) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return PodOfServer(conn)
	}
	if line, gone, err := server(); line != "" || gone || err != nil {
		t.Errorf("this process: %q, gone is %v, %v", line, gone, err)
	}
	l.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperLeavesItsSocket$")
	cmd.Env = append(os.Environ(), "UDS_TEST_LEAVE="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(io.LimitReader(out, int64(len("ready 12345\n"))))
	_ = cmd.Wait()
	var child int
	if _, err := fmt.Sscanf(string(text), "ready %d", &child); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	if line, gone, err := server(); line != "" || !gone || err != nil {
		t.Errorf("one that has ended: %q, gone is %v, %v", line, gone, err)
	}
}

// TestHelperLeavesItsSocket listens, leaves the socket to a child and ends.
func TestHelperLeavesItsSocket(t *testing.T) {
	path := os.Getenv("UDS_TEST_LEAVE")
	if path == "" {
		t.Skip("a helper of another test")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("ready %d\n            ", child.Process.Pid)
	os.Exit(0)
}
