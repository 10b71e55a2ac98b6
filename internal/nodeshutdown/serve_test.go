package nodeshutdown

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/polylet/polylet/internal/uds"
)

// It is also what another user runs.
func TestAnyOtherUserIsRefused(t *testing.T) {
	if path := os.Getenv("POLYLET_TEST_SHUTDOWN_SOCKET"); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if n, err := conn.Read(make([]byte, 64)); err == nil {
			t.Fatalf("it was told something, %d bytes", n)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, listener.Addr().String()} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- New(Config{UID: 60804}).Serve(t.Context(), listener) }()
	for uid, allowed := range map[uint32]bool{60801: false, 60804: true} {
		cmd := exec.Command(program, "-test.run=^TestAnyOtherUserIsRefused$")
		cmd.Env = append(os.Environ(), "POLYLET_TEST_SHUTDOWN_SOCKET="+listener.Addr().String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); (err != nil) != allowed {
			t.Errorf("user %d: %v: %s", uid, err, out)
		}
	}
	_ = listener.Close()
	<-done
}

// TestAProcessOfAPodIsRefusedWhateverItsNumber: who may mount the directory of sockets into
// a pod would else keep the machine from its shutdown.
func TestAProcessOfAPodIsRefusedWhateverItsNumber(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	for _, c := range []struct {
		peer uds.Peer
		may  bool
	}{
		{uds.Peer{UID: 0}, true}, {uds.Peer{UID: 60804}, true}, {uds.Peer{UID: 60801}, false},
		{uds.Peer{UID: 0, Pod: "0::/kubepods/x"}, false}, {uds.Peer{UID: 60804, Pod: "0::/kubepods/x"}, false},
	} {
		k := New(Config{UID: 60804})
		k.peerOf = func(net.Conn) (uds.Peer, error) { return c.peer, nil }
		if err := k.mayFollow(here); (err == nil) != c.may {
			t.Errorf("%+v: %v", c.peer, err)
		}
	}
}

// refusing are connections, of which nobody knows whose they are, until they are used up.
type refusing struct{ left int }

func (l *refusing) Accept() (net.Conn, error) {
	if l.left == 0 {
		return nil, net.ErrClosed
	}
	l.left--
	conn, _ := net.Pipe()
	return conn, nil
}

func (*refusing) Close() error   { return nil }
func (*refusing) Addr() net.Addr { return &net.UnixAddr{} }

func TestWhoIsRefusedDoesNotFillTheLog(t *testing.T) {
	lines := 0
	log := funcr.New(func(string, string) { lines++ }, funcr.Options{})
	k := New(Config{UID: 60804})
	k.peerOf = func(net.Conn) (uds.Peer, error) { return uds.Peer{UID: 0, Pod: "0::/kubepods/x"}, nil }
	if err := k.Serve(logr.NewContext(t.Context(), log), &refusing{left: 1000}); err == nil {
		t.Error("it goes on without a socket")
	}
	if lines != 1 {
		t.Errorf("a thousand connections are %d lines of the log", lines)
	}
}
