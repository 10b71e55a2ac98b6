package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/supervise"
)

// TestAHandoutOwnsTheConfigurationOfServicesThatAManagerKeeps has a real gateway, which
// this test starts again whenever it ends, as systemd does.
func TestAHandoutOwnsTheConfigurationOfServicesThatAManagerKeeps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files to other users")
	}
	dir, err := os.MkdirTemp("", "own") // t.TempDir's is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &runningNode{T: t, dir: dir}
	first, second := freePort(t), freePort(t)
	n.configure(first)
	handout := n.startHandout()
	args := filepath.Join(n.dir, "sock", "gateway", argsFile)
	becomes(t, args, followSliceFlag)
	for _, service := range ownFlags() {
		becomes(t, filepath.Join(n.dir, "sock", service, argsFile), "POLYLET_ARGS='--config-slice="+filepath.Join(n.dir, "sock", service, sliceFile)+" "+followSliceFlag+"'")
	}
	gateway := keep(t, args)
	n.healthy(first)

	n.configure(second)
	n.healthy(second)
	n.await("the change is good", func(s liveconf.State) bool { return s.Phase == liveconf.Good && s.Generation == 2 })
	if n := gateway.starts(); n != 2 {
		t.Errorf("%d starts", n)
	}

	n.write(fmt.Sprintf("enableServer: false\naddress: 127.0.0.1\nhealthzPort: %d\ncgroupDriver: systemd\n", second))
	n.await("what a running node cannot change is refused", func(s liveconf.State) bool { return s.Phase == liveconf.Refused })
	handout() // killed: the services run on
	handout = n.startHandout()
	n.await("it is no start of the node", func(s liveconf.State) bool { return s.Phase == liveconf.Refused && s.Generation == 2 })

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	n.configure(taken.Addr().(*net.TCPAddr).Port)
	n.await("the bad change is taken back", func(s liveconf.State) bool {
		return s.Phase == liveconf.WentBack && strings.Contains(s.Error, "healthzPort")
	})
	n.healthy(second)
	handout()
	gateway.stop()

	n.write("maxPods: [\n")
	handout = n.startHandout() // a start, with the last known good one
	n.await("a start with a bad file says so", func(s liveconf.State) bool { return s.Phase == liveconf.Refused && strings.Contains(s.Error, "k.yaml") })
	keep(t, args)
	n.healthy(second)
	handout()
}

// startHandout starts polylet handout --follow and returns its end by SIGKILL.
func (n *runningNode) startHandout() (kill func()) {
	n.Helper()
	cmd := exec.Command(os.Args[0], "handout", "--follow", "--config="+filepath.Join(n.dir, "k.yaml"), "--root-dir="+filepath.Join(n.dir, "root"),
		"--cert-dir="+filepath.Join(n.dir, "pki"), "--socket-dir="+filepath.Join(n.dir, "sock"), "--node-page-address=", "--hostname-override=n1", "--config-deadline=2s",
		"--socket-group=60900", "--gateway-user=60901", "--probes-user=60902")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its end is what matters
	})
	n.Cleanup(kill)
	return kill
}

// kept is a gateway that is started again and again with the flags in a file.
type kept struct {
	stop  func()
	mu    sync.Mutex
	count int
}

func (k *kept) starts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

func keep(t *testing.T, args string) *kept {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, k := make(chan struct{}), &kept{}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			raw, err := os.ReadFile(args)
			if err == nil {
				text, _ := strconv.Unquote("`" + strings.TrimSpace(strings.TrimPrefix(string(raw), "POLYLET_ARGS=")) + "`")
				cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"gateway"}, strings.Fields(strings.Trim(text, "'"))...)...)
				cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
				k.mu.Lock()
				k.count++
				k.mu.Unlock()
				_ = cmd.Run() // its end is what matters
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	k.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(k.stop)
	return k
}

func TestALifeThatNobodyAskedForIsAnEnd(t *testing.T) {
	s := newLives()
	loaded := loadedWith(t)
	s.handed("stats", loaded)
	for range 2 {
		if s.began("stats", 1) {
			t.Error("the first life is an end")
		}
	}
	if !s.began("stats", 2) {
		t.Error("a second one by itself is none")
	}
	other := loadedWith(t, "--volume-stats-agg-period=7s")
	if !s.runsOther("stats", other) || s.runsOther("stats", loaded) {
		t.Error("it is not known what it runs with")
	}
	s.handed("stats", other)
	if s.began("stats", 3) {
		t.Error("one that was asked for is an end")
	}
	if !s.began("stats", 4) {
		t.Error("the next one is none")
	}
}

func TestAServiceThatStartedBeforeAnythingWasHandedOutEndsOnceItIs(t *testing.T) {
	dir := t.TempDir()
	loaded := loadedWith(t, "--socket-dir="+dir, followSliceFlag)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- runSlice(ctx, "stats", loaded, func(ctx context.Context, _ *kubeletconfig.Loaded) error {
			close(runs)
			<-ctx.Done()
			return nil
		})
	}()
	<-runs
	put(t, filepath.Join(dir, "probes", argsFile), "another's")
	if !still(done) {
		t.Fatal("it ends for what another has")
	}
	put(t, filepath.Join(dir, "stats", argsFile), "POLYLET_ARGS='--config-slice=x'\n")
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Errorf("it ends with %v, %v", err, ctx.Err())
	}
}

// As after systemctl stop and start of polylet-handout alone, which takes its directories
// away.
func TestAnOwnerThatWasStoppedAloneHasNotStartedTheNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sock")
	copies := filepath.Join(dir, "stats")
	slice, err := json.Marshal(kubeletconfig.NewSlice(loadedWith(t), 1, "sha256:x", false))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(copies, sliceFile), string(slice))
	loaded := loadedWith(t, "--socket-dir="+dir, "--config-slice="+filepath.Join(copies, sliceFile), followSliceFlag)
	n := &nodeRun{loaded: loaded, log: klog.Background(), services: []string{"stats"}}
	if n.anyRuns() {
		t.Error("nothing runs yet")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- runSlice(ctx, "stats", loaded, func(ctx context.Context, _ *kubeletconfig.Loaded) error {
			close(runs)
			<-ctx.Done()
			return nil
		})
	}()
	<-runs
	if err := os.RemoveAll(copies); err != nil {
		t.Fatal(err)
	}
	if !n.anyRuns() {
		t.Error("what runs is not seen")
	}
	cancel()
	<-done
	if n.anyRuns() {
		t.Error("what has ended is seen")
	}
}

func TestAServiceThatIsLookedForWhenItStartsIsSeenAllTheSame(t *testing.T) {
	path := t.TempDir()
	looks, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(looks.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(50*time.Millisecond, func() { _ = looks.Close() })
	defer over.Stop()
	release, err := hold(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if !isHeld(path) {
		t.Error("it is not seen")
	}
	other, err := hold(t.Context(), path)
	if err != nil {
		t.Fatalf("another one beside it: %v", err)
	}
	other()
}

// As in containers, whose flags are the same before and after.
func TestAServiceWhoseSliceIsNotThereYetEndsOnceItIs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stats", sliceFile)
	loaded := loadedWith(t, "--socket-dir="+dir, "--config-slice="+path, followSliceFlag)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- runSlice(ctx, "stats", loaded, func(ctx context.Context, _ *kubeletconfig.Loaded) error {
			close(runs)
			<-ctx.Done()
			return nil
		})
	}()
	<-runs
	if !still(done) {
		t.Fatal("it ends by itself")
	}
	put(t, path, "{}")
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Errorf("it ends with %v, %v", err, ctx.Err())
	}
}

// systemd gives each unit a cgroup beside the others of its slice.
func TestTheCgroupsOfUnitsLieBesideHandouts(t *testing.T) {
	for text, want := range map[string]string{
		"0::/polylet.slice/polylet-handout.service\n":                                       "/polylet.slice",
		"12:cpu,cpuacct:/polylet.slice/x\n1:name=systemd:/y\n0::/polylet.slice/a.service\n": "/polylet.slice",
		"12:cpu,cpuacct:/polylet.slice/polylet-handout.service\n":                           "",
		"": "",
	} {
		if got := besideCgroup(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Then nothing is copied for it, and its owner's other services change all the same.
func TestAChangeIsHandedOutBesideAGatewayThatIsRoot(t *testing.T) {
	loaded := loadedWith(t)
	n := &nodeRun{loaded: loaded, log: klog.Background()}
	n.hand(loaded, 1, loaded.Flags)
	if err := (&live{node: n, seen: newLives()}).Put(loadedWith(t, "--volume-stats-agg-period=7s"), 2); err != nil || n.handed.Load().generation != 2 {
		t.Errorf("%v, %+v", err, n.handed.Load())
	}
}

// Where a way back is a start of all services, no change tells what is copied.
func TestWhatIsCopiedForTheGatewayFollowsAStartOfAllServices(t *testing.T) {
	bad, good := loadedWith(t, "--tls-cert-file=/bad.crt", "--tls-private-key-file=/bad.key"), loadedWith(t)
	n := &nodeRun{loaded: bad, log: klog.Background()}
	for generation, loaded := range map[uint64]*kubeletconfig.Loaded{1: bad, 2: good} {
		n.hand(loaded, generation, loaded.Flags)
		if n.copyFor("gateway", supervise.Identity{Drop: true}); n.credentials.loaded.Load() != loaded {
			t.Errorf("generation %d: what is copied is another configuration's", generation)
		}
	}
}
