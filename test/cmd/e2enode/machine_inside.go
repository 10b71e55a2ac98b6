package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/suite"
	"github.com/polylet/polylet/test/harness/vm"
)

// inMachine is what the virtual machine was booted for: it runs one group, and leaves the
// logs and the report on the disk of what is kept.
func inMachine() error {
	o, err := readOrder([]string{filepath.Join(vm.PayloadAt, orderName)})
	if err != nil {
		return err
	}
	if err := mountArtifacts(o); err != nil {
		return err
	}
	go func() {
		for range time.Tick(syncEvery) {
			syscall.Sync()
		}
	}()
	err = runMachine(o)
	keepJournal(o)
	err = errors.Join(err, endPods(podsCgroup))
	if err != nil {
		fmt.Println("the run in the machine:", err) // it is off with this process
	}
	syscall.Sync()
	return errors.Join(err, syscall.Unmount(o.Artifacts, syscall.MNT_DETACH))
}

// endPods ends the pods that the suite has left below a cgroup. The first process of a
// container does not heed the signal with which systemd ends what runs when it switches
// off, and is waited for as long as for a unit, which is half an hour here.
func endPods(cgroup string) error {
	err := os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there was none
	}
	return err
}

func mountArtifacts(o order) error {
	for _, dir := range []string{o.Artifacts, o.Dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount(vm.KeptDisk, o.Artifacts, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", vm.KeptDisk, err)
	}
	return os.WriteFile(filepath.Join(o.Artifacts, machineFile), []byte(suite.DescribeMachine()+"\n"), 0o644)
}

// runMachine starts containerd by its unit and runs the suite, which has systemd start the
// agent.
func runMachine(o order) error {
	ctx := context.Background()
	if err := settleMachine(o); err != nil {
		return err
	}
	r, err := registry.Open(ctx, o.Images)
	if err != nil {
		return err
	}
	if err := r.WriteHosts("/etc/containerd/certs.d"); err != nil {
		return err
	}
	if err := configureContainerd(true); err != nil {
		return err
	}
	say("starting containerd …")
	if err := commands([][]string{{"systemctl", "start", "containerd.service"}}); err != nil {
		return err
	}
	conn, err := waitContainerd(ctx, "the journal")
	if err != nil {
		return err
	}
	defer conn.Close()
	if o.Lift {
		go liftQuotas()
	}
	return runSuite(ctx, o)
}

// startAgent has the suite start the agent as it does before its first test: the control
// plane is not here, so that it cannot start both. stopped ends the agent.
func startAgent(ctx context.Context, o order, work, suite string) (stopped func(), err error) {
	log, err := os.Create(filepath.Join(o.Artifacts, "agent-start.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, suite, append([]string{"--run-kubelet-mode"}, o.Flags...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, log, log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		log.Close()
	}
	say("waiting for the agent …")
	for {
		if healthy(ctx) {
			return stopped, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("start the agent: %w; see %s", err, log.Name())
		case <-time.After(time.Second):
		}
	}
}

// healthy is whether the agent says so.
func healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// settleMachine names the machine as the suite's node, and has systemd give every unit
// what the stand-in of the kubelet wants to know.
func settleMachine(o order) error {
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/hosts": "127.0.0.1 localhost\n" + vm.Address + " " + nodeName + "\n",
		// Nobody is there: what looks for the world outside learns without waiting that
		// there is none.
		"/etc/resolv.conf": "nameserver 127.0.0.1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := setKernel("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	all := [][]string{{"systemctl", "set-environment", agentVariable + "=" + o.Program}}
	if o.Logind { // the machine is made without it, for it boots faster so
		if err := os.Remove("/etc/systemd/system/systemd-logind.service"); err != nil {
			return err
		}
		if o.Agent == agentPolylet {
			all = append(all, []string{"install", "-D", "-m", "0644", filepath.Join(vm.PayloadAt, busPolicy), "/usr/share/dbus-1/system.d/polylet.conf"},
				[]string{"systemctl", "reload", "dbus.service"})
		}
		all = append(all, []string{"systemctl", "daemon-reload"}, []string{"systemctl", "start", "systemd-logind.service"})
	}
	if o.Swap > 0 {
		const file = "/var/swap"
		for _, args := range []string{"fallocate --length=" + strconv.FormatInt(o.Swap, 10), "chmod 600", "mkswap", "swapon"} {
			all = append(all, append(strings.Fields(args), file))
		}
	}
	if err := commands(all); err != nil {
		return err
	}
	// The suite and ginkgo find the stand-ins, and the TMPDIR that is in memory.
	return os.Setenv("PATH", o.Bin+":"+systemPath)
}

func commands(all [][]string) error {
	for _, c := range all {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", c, err, out)
		}
	}
	return nil
}

// keepJournal leaves what systemd, the kernel and containerd have said.
func keepJournal(o order) {
	out, err := exec.Command("/usr/bin/journalctl", "--no-pager", "--boot", "--output=short-monotonic").CombinedOutput()
	if err == nil {
		err = os.WriteFile(filepath.Join(o.Artifacts, "journal.log"), out, 0o644)
	}
	if err != nil {
		say("the journal is not kept: %v", err)
	}
}
