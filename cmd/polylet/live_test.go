package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/testkit/eventually"
)

func TestEachServiceGetsTheNewestConfigurationAndOnlyPodsyncItsSecrets(t *testing.T) {
	first := load(t, "--hostname-override=n1", "--manifest-url-header=Authorization:secret", "--max-pods=7")
	node := &nodeRun{loaded: first, gid: "0"}
	first.Flags.SocketDir = filepath.Join(t.TempDir(), "sock")
	node.hand(first, 1, first.Flags)
	for _, name := range service.ServersFirst() {
		args, err := node.argsOf(t.Context(), name, supervise.Identity{})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(first.Flags.SocketDir, name, sliceFile)
		if args[len(args)-1] != "--config-slice="+path {
			t.Errorf("%s is started with %v", name, args)
		}
		got := load(t, "--config-slice="+path)
		generation, checksum := got.Runs()
		if got.Config.MaxPods != 7 || generation != 1 || checksum != configslice.Checksum(first.Fields(), name) || got.Origins()["maxPods"] != "flag --max-pods" {
			t.Errorf("%s gets %d pods, generation %d, checksum %s, set by %v", name, got.Config.MaxPods, generation, checksum, got.Origins())
		}
		raw, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(raw), `"secret"`) != (name == "podsync") {
			t.Errorf("%s: %v %s", name, err, raw)
		}
		if info, err := os.Stat(path); err != nil || name == "podsync" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	second := load(t, "--max-pods=8")
	node.hand(second, 2, first.Flags)
	if _, err := node.writeSlice("podsync", supervise.Identity{}); err != nil {
		t.Fatal(err)
	}
	got := load(t, "--config-slice="+filepath.Join(first.Flags.SocketDir, "podsync", sliceFile))
	if generation, _ := got.Runs(); got.Config.MaxPods != 8 || generation != 2 {
		t.Errorf("the newest one has %d pods", got.Config.MaxPods)
	}
}

func TestPolyletRunStartsWithTheLastKnownGoodConfigurationOnlyIfThereIsOneAndItMay(t *testing.T) {
	root := t.TempDir()
	file := written(t, "k.yaml", aConfiguration+"maxPods: 9\n")
	args := []string{"--config=" + file, "--root-dir=" + root, "--hostname-override=n1"}
	good := load(t, args...)
	if err := os.WriteFile(file, []byte(aConfiguration+"maxPods: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadOrLast(args); err == nil || !strings.Contains(err.Error(), "maxPods") {
		t.Errorf("without one: %v", err)
	}
	keepGood(t, root, good)
	if l, err := loadOrLast(args); err != nil || l.Config.MaxPods != 9 || !l.Handed() {
		t.Errorf("with one: %v", err)
	}
	if _, err := loadOrLast(append(args, "--live-config=false")); err == nil {
		t.Error("the kubelet's way has one, too")
	}
	if _, err := loadOrLast(append(args, "--no-such-flag")); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("flags are no configuration that goes back: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := loadOrLast(args); err == nil {
		t.Error("a machine whose file was taken away is a node still")
	}
}

// keepGood lets a controller find that a configuration is good, which nobody uses.
func keepGood(t *testing.T, root string, good *kubeletconfig.Loaded) {
	t.Helper()
	c := liveconf.New(liveconf.Config{Dir: keptDir(root), Args: []string{"--hostname-override=n1"}, Deadline: time.Second, Log: klog.Background(),
		Load: func() (*kubeletconfig.Loaded, error) { return good, nil }})
	if _, _, err := c.Start(good, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx, silentNode{}) }()
	kept := filepath.Join(keptDir(root), "last-known-good.json")
	eventually.Nil(t, func() error {
		_, err := os.Stat(kept)
		return err
	})
	cancel()
	<-done
}

type silentNode struct{}

func (silentNode) Put(*kubeletconfig.Loaded, uint64) error { return nil }
func (silentNode) Restart(string) error                    { return nil }
func (silentNode) Change(string) error                     { return nil }
func (silentNode) Say(liveconf.State)                      {}
func (silentNode) Processors(string) (schedstat.Times, bool) {
	return schedstat.Times{}, false
}
func (silentNode) Ask(context.Context, string) (liveconf.Report, error) {
	return liveconf.Report{}, nil
}

// TestTheFilesAreFollowedThroughLinksAsAMountedConfigMapHasThem: its name is a link to a
// link to a directory that is exchanged.
func TestTheFilesAreFollowedThroughLinksAsAMountedConfigMapHasThem(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "kubelet"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "one")
	file := filepath.Join(dir, "kubelet")
	if err := os.Symlink("..data/kubelet", file); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.Symlink(file, outside); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		followFiles(ctx, klog.Background(), func(d *directories) { wantConfiguration(d, &kubeletconfig.Flags{ConfigFile: outside}) }, func() {
			raw, err := os.ReadFile(outside)
			if err != nil {
				raw = []byte(err.Error())
			}
			seen <- string(raw)
		})
	}()
	await := func(want string) {
		t.Helper()
		timeout := time.After(30 * time.Second)
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-timeout:
				t.Fatalf("%q is not seen", want)
			}
		}
	}
	await("one")
	version("..2", "two")
	await("two")
	if err := os.WriteFile(filepath.Join(dir, "..2", "kubelet"), []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	version("..3", "four")
	await("four")
	cancel()
	<-done
}

func TestSystemctlStatusShowsHowTheConfigurationStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	loaded := load(t, "--hostname-override=n1")
	loaded.Flags.SocketDir = filepath.Join(t.TempDir(), "sock")
	l := &live{node: &nodeRun{loaded: loaded, log: klog.Background()}}
	for _, tc := range []struct {
		state liveconf.State
		want  string
	}{
		{liveconf.State{Phase: liveconf.Refused, Generation: 3, Error: "maxPods:\nmany"}, "STATUS=what the files say is not taken, generation 3 goes on: maxPods: many"},
		{liveconf.State{Phase: liveconf.Good, Generation: 3}, "STATUS="},
	} {
		l.Say(tc.state)
		got := make([]byte, 1000)
		if err := sock.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := sock.Read(got); err != nil || string(got[:n]) != tc.want {
			t.Errorf("%s: %v %q", tc.state.Phase, err, got[:n])
		}
	}
}
