package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/liveconf"
)

// TestPolyletRunTakesAChangeAndGoesBackFromABadOne has a real gateway and no other
// service.
func TestPolyletRunTakesAChangeAndGoesBackFromABadOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to start the gateway as its own user")
	}
	dir, err := os.MkdirTemp("", "live") // t.TempDir's parent is closed to the gateway's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // As a socket directory's parent is.
		t.Fatal(err)
	}
	n := &runningNode{T: t, dir: dir}
	first, second := freePort(t), freePort(t)
	n.configure(first)
	n.start()
	n.healthy(first)
	n.await("the first configuration is good", func(liveconf.State) bool {
		_, err := os.Stat(filepath.Join(keptDir(filepath.Join(n.dir, "root")), "last-known-good.json"))
		return err == nil
	})

	n.configure(second)
	n.healthy(second)
	n.await("the change is good", func(s liveconf.State) bool { return s.Phase == liveconf.Good && s.Generation == 2 })

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	n.configure(taken.Addr().(*net.TCPAddr).Port)
	n.await("the bad change is taken back", func(s liveconf.State) bool {
		return s.Phase == liveconf.WentBack && strings.Contains(s.Error, "gateway ended 3 times") && strings.Contains(s.Error, "address already in use")
	})
	n.healthy(second)

	n.stop()
	n.write("maxPods: [\n")
	n.start() // with the last known good one
	n.healthy(second)
	n.await("the start says so", func(s liveconf.State) bool { return s.Phase == liveconf.Refused })
}

// TestAWayBackThatOnlyAStartCanGoIsGoneByOne: the start took another directory of logs
// together with a port that is taken.
func TestAWayBackThatOnlyAStartCanGoIsGoneByOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to start the gateway as its own user")
	}
	dir, err := os.MkdirTemp("", "live")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // As a socket directory's parent is.
		t.Fatal(err)
	}
	n := &runningNode{T: t, dir: dir}
	good := freePort(t)
	n.configure(good)
	n.start()
	n.await("the first configuration is good", func(liveconf.State) bool {
		_, err := os.Stat(filepath.Join(keptDir(filepath.Join(n.dir, "root")), "last-known-good.json"))
		return err == nil
	})
	n.stop()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	n.write(fmt.Sprintf("enableServer: false\naddress: 127.0.0.1\nhealthzPort: %d\npodLogsDir: /elsewhere\n", taken.Addr().(*net.TCPAddr).Port))
	n.start()
	n.healthy(good)
	n.await("it says what was bad", func(s liveconf.State) bool {
		return s.Phase == liveconf.WentBack && strings.Contains(s.Error, "podLogsDir") && strings.Contains(s.Error, "address already in use")
	})
	if err := n.process.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("polylet run is another process than the one that was started: %v", err)
	}
}

// runningNode is polylet run in a directory of its own.
type runningNode struct {
	*testing.T
	dir     string
	process *exec.Cmd
}

func (n *runningNode) write(text string) {
	n.Helper()
	fresh := filepath.Join(n.dir, "fresh")
	if err := os.WriteFile(fresh, []byte(aConfiguration+text), 0o600); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(n.dir, "k.yaml")); err != nil {
		n.Fatal(err)
	}
}

func (n *runningNode) configure(healthz int) {
	n.Helper()
	n.write(fmt.Sprintf("enableServer: false\naddress: 127.0.0.1\nhealthzPort: %d\n", healthz))
}

func (n *runningNode) start() {
	n.Helper()
	n.process = exec.Command(os.Args[0], "run", "--services=gateway", "--config="+filepath.Join(n.dir, "k.yaml"), "--root-dir="+filepath.Join(n.dir, "root"),
		"--cert-dir="+filepath.Join(n.dir, "pki"), "--socket-dir="+filepath.Join(n.dir, "sock"), "--node-page-address=", "--hostname-override=n1", "--config-deadline=3s")
	n.process.Stdout, n.process.Stderr = os.Stderr, os.Stderr
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.process.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(n.stop)
}

func (n *runningNode) stop() {
	if n.process == nil {
		return
	}
	_ = n.process.Process.Signal(syscall.SIGTERM)
	_ = n.process.Wait() // its end is what matters
	n.process = nil
}

func (n *runningNode) healthy(port int) {
	n.Helper()
	n.await(fmt.Sprintf("port %d answers", port), func(liveconf.State) bool {
		ctx, cancel := context.WithTimeout(n.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
		if err != nil {
			n.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil
	})
}

func (n *runningNode) await(what string, is func(liveconf.State) bool) {
	n.Helper()
	var state liveconf.State
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		raw, err := os.ReadFile(filepath.Join(n.dir, "sock", "nodestatus", stateFile))
		if err == nil && json.Unmarshal(raw, &state) != nil {
			n.Fatalf("half a state: %s", raw)
		}
		if is(state) {
			return
		}
	}
	n.Fatalf("not within a minute: %s; %+v", what, state)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
