package uds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

type whoServer struct {
	healthgrpc.UnimplementedHealthServer
	got chan Peer
}

func (s whoServer) Check(ctx context.Context, _ *healthgrpc.HealthCheckRequest) (*healthgrpc.HealthCheckResponse, error) {
	p, _ := PeerFrom(ctx)
	s.got <- p
	return &healthgrpc.HealthCheckResponse{}, nil
}

func TestTheServerKnowsWhoCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	who := whoServer{got: make(chan Peer, 1)}
	server := grpc.NewServer(grpc.Creds(Credentials(false)))
	healthgrpc.RegisterHealthServer(server, who)
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(ServedBy(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	p := <-who.got
	if int(p.UID) != os.Getuid() || int(p.GID) != os.Getgid() || int(p.PID) != os.Getpid() {
		t.Fatalf("peer %+v", p)
	}
	if _, ok := PeerFrom(t.Context()); ok {
		t.Fatal("a peer without a call")
	}
}

func TestOtherSocketsAreRefused(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, _, err := Credentials(false).ServerHandshake(a); err == nil || !strings.Contains(err.Error(), "not a Unix socket") {
		t.Fatalf("err = %v", err)
	}
}

// handshakes connects to a server and returns what each side says.
func handshakes(t *testing.T, server, client credentials.TransportCredentials) (conn net.Conn, serverErr, clientErr error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	conn, _, serverErr = server.ServerHandshake(far)
	_, _, clientErr = client.ClientHandshake(t.Context(), "", near)
	return conn, serverErr, clientErr
}

// TestAServerOfAStrangersUserIsNotSpokenTo has the socket opened by another
// user: this program, as its own child.
func TestAServerOfAStrangersUserIsNotSpokenTo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	const stranger = 60990
	dir, err := os.MkdirTemp("", "uds")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chown(dir, stranger, stranger), os.Chmod(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "podsync.sock")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestHelperListens$")
	cmd.Env = append(os.Environ(), "UDS_TEST_LISTEN="+path)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { hold.Close(); _ = cmd.Wait() }()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := ServedBy(nil).ClientHandshake(t.Context(), "", conn); err == nil || !strings.Contains(err.Error(), "served by uid 60990, which is none of polylet's") {
		t.Errorf("a stranger's server: %v", err)
	}
	if _, _, err := ServedBy(func(uid uint32) bool { return uid == stranger }).ClientHandshake(t.Context(), "", conn); err != nil {
		t.Errorf("the service's own user: %v", err)
	}
}

// TestHelperListens is the child of the test above, until its input ends.
func TestHelperListens(t *testing.T) {
	path := os.Getenv("UDS_TEST_LISTEN")
	if path == "" {
		t.Skip("runs as a child only")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestAUserHoldsOnlySoManyConnections(t *testing.T) {
	server := Credentials(false)
	var last net.Conn
	for i := range connectionsOfAUser + 1 {
		conn, err, clientErr := handshakes(t, server, ServedBy(nil))
		if clientErr != nil {
			t.Fatal(clientErr)
		}
		if over := i == connectionsOfAUser; (err != nil) != over {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		if conn != nil {
			last = conn
		}
	}
	last.Close()
	last.Close() // counts once
	if _, err, _ := handshakes(t, server, ServedBy(nil)); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if _, err, _ := handshakes(t, server, ServedBy(nil)); err == nil {
		t.Error("a connection that was closed twice counts twice")
	}
}
