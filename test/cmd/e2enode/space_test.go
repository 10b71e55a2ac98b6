package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/workspace"
)

// TestMain lets the test's own program take every role of a run.
func TestMain(m *testing.M) {
	_, standIn := standIns[filepath.Base(os.Args[0])]
	role := len(os.Args) > 1 && roles[os.Args[1]] != nil
	if standIn || role {
		main()
	}
	os.Exit(m.Run())
}

// look is run in the place of the suite.
const look = `
set -e
test "$(hostname)" = e2e-node
test "$(grep -c ' - cgroup' /proc/self/mountinfo)" = "$(ls -d /sys/fs/cgroup/* | wc -l)"
! grep -q polylet /proc/self/cgroup
test "$(ls /var/lib/kubelet | wc -l)" = 0
echo changed > /etc/e2enode-was-here
echo 7 > /proc/sys/kernel/panic
(sleep 1000 >/dev/null 2>&1 & )
SECONDS=0; ! timeout 5 bash -c 'echo > /dev/tcp/198.51.100.7/80' 2>/dev/null; test $SECONDS -lt 4
ctr -n k8s.io images ls -q | grep -q busybox@sha256
grep -q containerd /proc/$(pidof containerd)/cgroup
systemd-run -p Delegate=true -p StandardError=append:"$OUT/unit.log" --unit=kubelet-1.service --slice=runtime.slice --remain-after-exit bash -c 'trap "echo ended %%; exit" TERM; echo began; while true; do sleep 0.1; done'
sudo systemctl list-units '*kubelet*' --state=running | grep -q kubelet-1.service
while ! grep -q began "$OUT/unit.log"; do sleep 0.1; done
sudo systemctl restart kubelet-1
while [ "$(grep -c began "$OUT/unit.log")" != 2 ]; do sleep 0.1; done
test "$(grep -c 'ended %' "$OUT/unit.log")" = 1
sudo systemctl kill kubelet-1
while systemctl list-units '*kubelet*' --state=running | grep -q kubelet-1; do sleep 0.1; done
kill -9 $(pidof containerd)
echo looked > "$OUT/looked"
$HANG
`

func TestARunHasAWorldOfItsOwnAndLeavesNothing(t *testing.T) {
	realtest.Asked(t, "makes namespaces, mounts and cgroups as root")
	r := lookingRunner(t)
	t.Run("when it ends", func(t *testing.T) {
		o := order{Agent: agentKubelet, Program: "/bin/true", Artifacts: t.TempDir(), Images: r.images}
		t.Setenv("OUT", o.Artifacts)
		t.Setenv("HANG", "")
		if err := r.runInSpace(t.Context(), group{}, o); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(o.Artifacts, "looked")); err != nil {
			t.Error(err)
		}
		nothingIsLeft(t, o.Artifacts)
	})
	t.Run("when the runner is killed", func(t *testing.T) {
		out := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestARunThatIsKilled$")
		cmd.Env = append(os.Environ(), "OUT="+out, "HANG=sleep 1000", "E2ENODE_IMAGES="+r.images)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, out, func() bool { _, err := os.Stat(filepath.Join(out, "looked")); return err == nil })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		waitUntil(t, out, func() bool { return left(out) == "" })
	})
}

// TestARunThatIsKilled is the runner that the test above kills.
func TestARunThatIsKilled(t *testing.T) {
	saved := os.Getenv("E2ENODE_IMAGES")
	if saved == "" {
		t.Skip("is run by another test")
	}
	r := &runner{binaries: builtBinaries(t)}
	_ = r.runInSpace(t.Context(), group{}, order{Agent: agentKubelet, Program: "/bin/true", Artifacts: os.Getenv("OUT"), Images: saved})
	t.Error("the run ended by itself")
}

func lookingRunner(t *testing.T) *runner {
	t.Helper()
	if err := install.Others(t.Context(), os.Stderr, images.SuitePackages()); err != nil {
		t.Fatal(err)
	}
	r := &runner{binaries: builtBinaries(t), images: t.TempDir()}
	if err := images.SaveNodeSuite(t.Context(), t.TempDir(), "/bin/true", r.images); err != nil {
		t.Fatal(err)
	}
	return r
}

func builtBinaries(t *testing.T) map[string]string {
	t.Helper()
	builder, err := programs.New(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := builder.Binaries(context.Background(), programs.Containerd(), programs.ContainerdShim())
	if err != nil {
		t.Fatal(err)
	}
	// A shell that ignores ginkgo's arguments takes its place.
	script := filepath.Join(t.TempDir(), "look")
	if err := os.WriteFile(script, []byte("#!/bin/bash\n"+look), 0o755); err != nil {
		t.Fatal(err)
	}
	binaries[programs.Ginkgo().Name], binaries[programs.E2ENodeTest().Name] = script, "/bin/true"
	return binaries
}

// left describes what the run that writes to artifacts has left on the machine,
// beside which others may run.
func left(artifacts string) string {
	var found []string
	dirs, _ := filepath.Glob(filepath.Join(workspace.Instances(), "*", "order.json"))
	for _, dir := range dirs {
		if text, err := os.ReadFile(dir); err != nil || !strings.Contains(string(text), artifacts) {
			continue
		}
		found = append(found, dir)
		cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/polylet-" + filepath.Base(filepath.Dir(dir)))
		found = append(found, cgroups...)
	}
	if _, err := os.Stat("/etc/e2enode-was-here"); err == nil {
		found = append(found, "/etc/e2enode-was-here")
	}
	if value, err := os.ReadFile("/proc/sys/kernel/panic"); err == nil && strings.TrimSpace(string(value)) == "7" {
		found = append(found, "kernel.panic=7")
	}
	return strings.Join(found, " ")
}

func nothingIsLeft(t *testing.T, artifacts string) {
	t.Helper()
	if found := left(artifacts); found != "" {
		t.Errorf("left on the machine: %s", found)
	}
	if err := syscall.Access("/sys/fs/cgroup", 0); err != nil {
		t.Errorf("the machine's cgroups: %v", err)
	}
}

func waitUntil(t *testing.T, artifacts string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("nothing came of it; left: %s", left(artifacts))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
