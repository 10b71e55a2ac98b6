package uds

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
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
	server := grpc.NewServer(grpc.Creds(Credentials()))
	healthgrpc.RegisterHealthServer(server, who)
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
	if _, _, err := Credentials().ServerHandshake(a); err == nil || !strings.Contains(err.Error(), "not a Unix socket") {
		t.Fatalf("err = %v", err)
	}
}
