package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/vm"
)

// Where a run in a virtual machine has its parts there.
const (
	machineBin       = vm.PayloadAt + "/bin"
	machineImages    = vm.PayloadAt + "/images"
	machineDir       = "/var/lib/e2enode"
	machineArtifacts = "/artifacts"
	// machineMemory is what the suite and the agent need together, and a pod for which no
	// limit is set; in MiB.
	machineMemory = 4096
	// emulated is how many times as long a group may take there.
	emulated = 4
)

// runInMachine boots a machine that runs the group, and takes what that has left. Nothing
// of it is on this machine but files, which go with the working directory.
func (r *runner) runInMachine(ctx context.Context, g group, o order) error {
	work, err := os.MkdirTemp("/var/tmp", "polylet-vm-suite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	payload := filepath.Join(work, "payload")
	if err := r.fillPayload(ctx, g, payload); err != nil {
		return err
	}
	if err := vm.Prepare(ctx, os.Stdout); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, roleBeside, work, o.Artifacts, r.binaries[programs.E2ENodeTest().Name])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = interruptWithin
	return cmd.Run()
}

// busPolicy has the machine's bus let none but root say that the machine goes down, as an
// installation of polylet does. Without it nobody is heeded who cannot be asked who he is,
// and the suite is gone as soon as it has spoken.
const busPolicy = "polylet.dbus.conf"

// fillPayload puts the run's programs, images and order where the machine has them.
func (r *runner) fillPayload(ctx context.Context, g group, payload string) error {
	bin := filepath.Join(payload, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	if err := buildSelf(ctx, r.root, filepath.Join(payload, vm.Program)); err != nil {
		return err
	}
	for name, from := range r.machinePrograms() {
		if err := copyFile(from, filepath.Join(bin, name), 0o755); err != nil {
			return err
		}
	}
	for _, standIn := range machineStandIns(r.agent) {
		if err := os.Symlink("../"+vm.Program, filepath.Join(bin, standIn)); err != nil {
			return err
		}
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", r.images, filepath.Join(payload, "images")).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the images: %w: %s", err, out)
	}
	if err := copyFile(filepath.Join(r.root, "deploy/systemd", busPolicy), filepath.Join(payload, busPolicy), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(payload, vm.Environment), []byte("ARGUMENTS=\n"), 0o644); err != nil {
		return err
	}
	return r.machineOrder(g).saveTo(filepath.Join(payload, orderName))
}

// machinePrograms are those of the payload, by their names there.
func (r *runner) machinePrograms() map[string]string {
	all := map[string]string{r.agent: r.program}
	for _, p := range []programs.Peer{programs.Containerd(), programs.ContainerdShim(), programs.Ginkgo(), programs.E2ENodeTest()} {
		all[p.Name] = r.binaries[p.Name]
	}
	return all
}

// machineStandIns are the programs that a machine with systemd lacks.
func machineStandIns(agent string) []string {
	if agent == agentKubelet {
		return []string{"sudo"}
	}
	return []string{"sudo", "kubelet"}
}

func (r *runner) machineOrder(g group) order {
	o := order{
		Dir: machineDir, Bin: machineBin, Images: machineImages, Artifacts: machineArtifacts, Machine: true, Logind: g.logind, Swap: g.swap, Lift: g.lift,
		Agent: r.agent, Program: filepath.Join(machineBin, r.agent), Token: rand.Text(),
	}
	for to, p := range map[*string]programs.Peer{&o.Suite: programs.E2ENodeTest(), &o.Ginkgo: programs.Ginkgo(), &o.Containerd: programs.Containerd()} {
		*to = filepath.Join(machineBin, p.Name)
	}
	g.procs, g.timeout = 1, g.timeout*emulated // two processors are one test's, its control plane's and its agent's
	o.Ginkgos, o.Flags = r.ginkgoArguments(o, g), suiteFlags(o, g)
	return o
}

// buildSelf builds this program so that it runs on any machine.
func buildSelf(ctx context.Context, root, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./test/cmd/e2enode")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build this program for the machine: %w: %s", err, out)
	}
	return nil
}

// machineFile is where a machine says what it is.
const machineFile = "machine.txt"

// described is what the machine of a run says of itself.
func described(artifacts string) (string, error) {
	text, err := os.ReadFile(filepath.Join(artifacts, machineFile))
	return fmt.Sprintf("%s, %d MiB, systemd, Debian under qemu (software emulation)", strings.TrimSpace(string(text)), machineMemory), err
}

// syncEvery bounds what is lost of the logs of a machine that is switched off.
const syncEvery = 20 * time.Second
