package supervise

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/uds"
)

// TestMain lets the test program be its own child.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "launch":
		fmt.Println(Launch(os.Args[2:]))
		os.Exit(3)
	case len(os.Args) > 1 && os.Args[1] == "child":
		os.Exit(child(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// child is what the supervised processes do.
func child(args []string) int {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		for _, name := range []string{"Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs"} {
			if strings.HasPrefix(line, name+":") {
				fmt.Println(strings.Join(strings.Fields(line), " "))
			}
		}
	}
	if l, err := uds.Activated("sock"); l != nil {
		fmt.Println("passed", l.Addr())
	} else if err != nil {
		fmt.Println(err)
	}
	switch args[0] {
	case "reach":
		reach()
	case "fail":
		fmt.Fprint(os.Stderr, "no newline")
		return 7
	case "read":
		text := make([]byte, 64)
		n, _ := os.Stdin.Read(text)
		fmt.Printf("read %q\n", text[:n])
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "orderly", "late":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		fmt.Println("pid", os.Getpid(), "ready")
		<-signals
		if args[0] == "orderly" {
			return 0
		}
		fmt.Println("asked to end")
		time.Sleep(time.Hour)
	case "hang":
		sayOnce()
	case "freeze":
		sayOnce()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	fmt.Println("pid", os.Getpid(), "ready")
	time.Sleep(time.Hour)
	return 0
}

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *log) await(t *testing.T, text string, count int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for strings.Count(l.String(), text) < count {
		if time.Now().After(deadline) {
			t.Fatalf("no %d times %q in:\n%s", count, text, l)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func run(t *testing.T, stopWithin time.Duration, children ...Child) (*log, func() time.Duration) {
	t.Helper()
	return runAs(t, Config{StopWithin: stopWithin}, children...)
}

func runAs(t *testing.T, cfg Config, children ...Child) (*log, func() time.Duration) {
	t.Helper()
	out := &log{}
	cfg.Program, cfg.LaunchCommand, cfg.Output, cfg.Log = os.Args[0], "launch", out, logr.Discard()
	cfg.Backoff = backoff.Config{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	s := New(cfg, children)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	var once sync.Once
	stop := func() time.Duration {
		begin := time.Now()
		once.Do(cancel)
		<-done
		return time.Since(begin)
	}
	t.Cleanup(func() { stop() })
	return out, stop
}

func does(what string) func() ([]string, error) {
	return func() ([]string, error) { return []string{"child", what}, nil }
}

func TestAChildThatFailsIsStartedAgainAndItsLinesAreNamed(t *testing.T) {
	out, stop := run(t, time.Second, Child{Name: "a", Args: does("fail")})
	out.await(t, "[a] no newline\n", 3)
	stop()
}

func TestAKilledChildComesBackWithItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	asked := 0
	out, stop := run(t, 5*time.Second, Child{Name: "a", Args: does("wait"), Sockets: func() ([]Socket, error) {
		asked++
		return []Socket{{Name: "sock", File: f}}, nil
	}})
	out.await(t, "ready", 1)
	fields := strings.Fields(out.String()[strings.Index(out.String(), "pid "):])
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	out.await(t, "ready", 2)
	out.await(t, "passed "+path, 2)
	if took := stop(); took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if asked != 2 {
		t.Errorf("the sockets were asked for %d times by two starts", asked)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("the socket went with the child: %v", err)
	} else {
		conn.Close()
	}
}

func TestAChildThatEndsRightAfterItsStartComesBackEverLaterAndOneThatRanWellAtOnce(t *testing.T) {
	delay := backoff.New(New(Config{}, nil).cfg.Backoff)
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if got := pause(delay, time.Second); got != want*time.Millisecond {
			t.Errorf("pause %d after one second is %v, want %v", i, got, want*time.Millisecond)
		}
	}
	if got := pause(delay, 2*time.Second); got != 100*time.Millisecond {
		t.Errorf("the pause after two healthy seconds is %v", got)
	}
}

func TestAStubbornChildIsKilledInTheEnd(t *testing.T) {
	out, stop := run(t, 200*time.Millisecond, Child{Name: "a", Args: does("stubborn")})
	out.await(t, "ready", 1)
	if took := stop(); took < 200*time.Millisecond || took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

func TestAnUnprivilegedChildHasNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give it up")
	}
	id, err := LookupIdentity("60901", 4242, -1)
	if err != nil {
		t.Fatal(err)
	}
	out, stop := run(t, 5*time.Second, Child{Name: "a", Args: does("wait"), Identity: id})
	out.await(t, "ready", 1)
	stop()
	for _, want := range []string{
		"Uid: 60901 60901 60901 60901", "Gid: 60901 60901 60901 60901", "Groups: 4242\n",
		"CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

// saidByObserver is what a child says that has no root and may read and look at all
// processes.
func saidByObserver(t *testing.T, what string) *log {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give it up")
	}
	id, err := LookupIdentity("60901")
	if err != nil {
		t.Fatal(err)
	}
	id.Capabilities = []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE}
	out, stop := run(t, 5*time.Second, Child{Name: "a", Args: does(what), Identity: id})
	out.await(t, "ready", 1)
	stop()
	return out
}

func TestAChildKeepsTheCapabilitiesThatItIsGivenAndNoOther(t *testing.T) {
	out := saidByObserver(t, "wait")
	const both = "0000000000080004"
	for _, want := range []string{"Uid: 60901 60901", "CapEff: " + both, "CapBnd: " + both, "NoNewPrivs: 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

func TestAChildReadsItsInputThoughItMayNotOpenIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give it up")
	}
	id, err := LookupIdentity("60901")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stop := run(t, 5*time.Second, Child{Name: "a", Args: does("read"), Identity: id, Input: path})
	out.await(t, `read "root's"`, 1)
	stop()
	out, stop = run(t, 5*time.Second, Child{Name: "a", Args: does("read"), Identity: id, Input: path + ".missing"})
	out.await(t, `read ""`, 1)
	stop()
}

func TestIdentities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change who it is")
	}
	if id, err := LookupIdentity("root"); err != nil || id.Drop {
		t.Errorf("root: %+v, %v", id, err)
	}
	if _, err := LookupIdentity("no-such-user-here"); err == nil || !strings.Contains(err.Error(), "useradd") {
		t.Errorf("unknown: %v", err)
	}
}

func TestTheChildsEnvironmentHasOnlyItsOwnSockets(t *testing.T) {
	base := []string{"PATH=/bin", "LISTEN_PID=1", "NOTIFY_SOCKET=/x", "WATCHDOG_USEC=5", "VAULT_TOKEN=secret", "HTTPS_PROXY=p"}
	env := environment(base, 42, launchPlan{Sockets: []string{"a", "b"}})
	if got := strings.Join(env, " "); got != "PATH=/bin VAULT_TOKEN=secret HTTPS_PROXY=p LISTEN_PID=42 LISTEN_FDS=2 LISTEN_FDNAMES=a:b" {
		t.Errorf("%s", got)
	}
	if err := Launch([]string{"{}"}); err == nil {
		t.Error("launch without a command is accepted")
	}
}

func TestAChildWithoutRootGetsNothingOfRootsEnvironment(t *testing.T) {
	base := []string{"PATH=/bin", "GOGC=50", "VAULT_TOKEN=secret", "HTTPS_PROXY=p"}
	if got := strings.Join(environment(base, 42, launchPlan{Identity: Identity{Drop: true}}), " "); got != "PATH=/bin GOGC=50" {
		t.Errorf("%s", got)
	}
	asked := launchPlan{Identity: Identity{Drop: true, Environment: []string{"HTTPS_PROXY"}}}
	if got := strings.Join(environment(base, 42, asked), " "); got != "PATH=/bin GOGC=50 HTTPS_PROXY=p" {
		t.Errorf("%s", got)
	}
}

// saidOf are the names and errors of children that ended.
type saidOf struct{ log }

func (s *saidOf) ended(name string, err error) { fmt.Fprintf(s, "%s: %v\n", name, err) }

func TestAChildIsStartedAgainWhenAskedWithItsNewArgumentsAndThatIsNoFailure(t *testing.T) {
	said := &saidOf{}
	var mu sync.Mutex
	what := "ready"
	args := func() ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		return []string{"child", what}, nil
	}
	out := &log{}
	s := New(Config{Program: os.Args[0], LaunchCommand: "launch", Output: out, Log: logr.Discard(), StopWithin: time.Second, Ended: said.ended,
		Backoff: backoff.Config{Initial: time.Hour, Max: time.Hour}}, []Child{{Name: "a", Args: args}, {Name: "b", Args: does("ready")}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	out.await(t, "[a] pid", 1)
	out.await(t, "[b] pid", 1)
	first := s.Pid("a")
	if err := s.Restart("a"); err != nil {
		t.Fatal(err)
	}
	out.await(t, "[a] pid", 2)
	if now := s.Pid("a"); first == 0 || now == 0 || now == first || s.Pid("c") != 0 {
		t.Errorf("its process was %d and is %d, of nobody's child it is %d", first, now, s.Pid("c"))
	}
	mu.Lock()
	what = "fail"
	mu.Unlock()
	if err := s.Restart("a"); err != nil {
		t.Fatal(err)
	}
	said.await(t, "a: exit status 7: no newline\n", 1) // and it would wait for an hour
	mu.Lock()
	what = "stubborn"
	mu.Unlock()
	if err := s.Restart("a"); err != nil {
		t.Fatal(err)
	}
	out.await(t, "[a] pid", 3)
	if err := s.Restart("a"); err != nil { // which takes a SIGKILL
		t.Fatal(err)
	}
	out.await(t, "[a] pid", 4)
	if got := said.String(); got != "a: exit status 7: no newline\n" {
		t.Errorf("said to have ended by itself: %s", got)
	}
	if n := strings.Count(out.String(), "[b] pid"); n != 1 {
		t.Errorf("the other child was started %d times", n)
	}
	if err := s.Restart("c"); err == nil || !strings.Contains(err.Error(), "start c again") {
		t.Errorf("a child that is not there: %v", err)
	}
}

// pids are those that children have said, in their order.
func (l *log) pids(t *testing.T) (all []int) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		if _, after, ok := strings.Cut(line, "pid "); ok {
			pid, err := strconv.Atoi(strings.Fields(after)[0])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

func TestOfAChildThatEndsInOrderItIsSaidThatItWasNotEndedFromHere(t *testing.T) {
	ended := make(chan error, 10)
	out, stop := runAs(t, Config{Ended: func(_ string, err error) { ended <- err }}, Child{Name: "a", Args: does("orderly")})
	out.await(t, "ready", 1)
	syscall.Kill(out.pids(t)[0], syscall.SIGTERM)
	if err := <-ended; !strings.Contains(err.Error(), "SIGTERM, which polylet run did not send") {
		t.Errorf("it is said %q", err)
	}
	out.await(t, "ready", 2)
	stop()
}

// A service manager that stops all processes of a unit at once.
func TestAChildThatIsEndedTogetherWithItsSupervisorIsNotStartedAgain(t *testing.T) {
	ended := make(chan error, 10)
	out, stop := runAs(t, Config{StopWithin: time.Second, Ended: func(_ string, err error) { ended <- err }},
		Child{Name: "a", Args: does("orderly")}, Child{Name: "b", Args: does("late")})
	out.await(t, "ready", 2)
	done := make(chan struct{})
	go func() { stop(); close(done) }()
	out.await(t, "[b] asked to end", 1)
	for _, pid := range out.pids(t) {
		syscall.Kill(pid, syscall.SIGTERM)
	}
	<-done
	if pids := out.pids(t); len(pids) != 2 || len(ended) != 0 {
		t.Errorf("%d processes were started, and of %d it was told that they ended", len(pids), len(ended))
	}
}
