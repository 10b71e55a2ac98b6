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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

func TestListenMakesDirectoryAndSocketForTheGroupOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "polylet", "podsync.sock")
	l, err := Listen(path, strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o750, path: 0o660} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %o", p, info.Mode(), err, want)
		}
	}
}

func TestListenReplacesADeadSocketButNotALiveOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.sock")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()

	live, err := Listen(path, "")
	if err != nil {
		t.Fatalf("dead socket in the way: %v", err)
	}
	defer live.Close()
	if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Fatalf("live socket in the way: %v", err)
	}
}

func TestListenRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "probes.sock")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("file in the way: %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "precious" {
		t.Fatal("the file was touched")
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(open, "x.sock"), ""); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Fatalf("directory open to everybody: %v", err)
	}
	if _, err := Listen(filepath.Join(dir, "y.sock"), "no-such-group-here"); err == nil || !strings.Contains(err.Error(), "groupadd") {
		t.Fatalf("unknown group: %v", err)
	}
}

func TestPassedSocketsAreFoundByNameAndOnlyForThisProcess(t *testing.T) {
	env := map[string]string{"LISTEN_PID": "42", "LISTEN_FDS": "3", "LISTEN_FDNAMES": "other:stats:polylet-probes.socket"}
	for _, tc := range []struct {
		pid  int
		name string
		fd   int
		ok   bool
	}{
		{42, "stats", 4, true},
		{42, "probes", 5, true},
		{42, "gateway", 0, false},
		{43, "stats", 0, false},
	} {
		fd, ok := passedFD(func(k string) string { return env[k] }, tc.pid, tc.name)
		if fd != tc.fd || ok != tc.ok {
			t.Errorf("pid %d name %s: %d %v, want %d %v", tc.pid, tc.name, fd, ok, tc.fd, tc.ok)
		}
	}
	env["LISTEN_FDS"] = "1"
	if _, ok := passedFD(func(k string) string { return env[k] }, 42, "stats"); ok {
		t.Error("a name beyond LISTEN_FDS was used")
	}
}

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

func TestADirectoryThatOthersMayChangeIsNoPlaceForSockets(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]struct {
		path string
		do   func(string) error
		want string
	}{
		"everybody's":        {"", func(d string) error { return os.Chmod(d, 0o777) }, "chmod o-w"},
		"everybody's sticky": {"", func(d string) error { return os.Chmod(d, 0o777|os.ModeSticky) }, "chmod o-w"},
		"a link":             {link, func(string) error { return nil }, "not a directory"},
		"a stranger's":       {"", func(d string) error { return os.Chown(d, 60990, -1) }, "belongs to uid 60990"},
		"a group's":          {"", func(d string) error { return errors.Join(os.Chown(d, -1, 60990), os.Chmod(d, 0o770)) }, "chmod g-w"},
	} {
		if os.Geteuid() != 0 && strings.HasSuffix(change.want, "60990") {
			continue // only root gives things away
		}
		path := change.path
		if path == "" {
			path = t.TempDir()
		}
		if err := change.do(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(filepath.Join(path, "x.sock"), ""); err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s: %v, want %q", name, err, change.want)
		}
	}
}

func TestASocketIsInItsOwnDirectoryWhereThereIsOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "podsync.d"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := Path(dir, "podsync"); got != dir+"/podsync.d/podsync.sock" {
		t.Errorf("podsync: %s", got)
	}
	if got := Path(dir, "stats"); got != dir+"/stats.sock" {
		t.Errorf("stats: %s", got)
	}
}
