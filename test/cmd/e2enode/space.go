package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The roles of the processes of a run, in the order in which they start.
const (
	roleSweep  = "@sweep"  // outside: removes what is left when the runner is gone
	roleInit   = "@init"   // enters the namespaces and becomes
	roleFirst  = "@first"  // their process 1: mounts, network, reaping
	roleFar    = "@far"    // holds the network's other end
	roleInside = "@inside" // runs registry, containerd, units and the suite
	roleEnter  = "@enter"  // becomes a program in a cgroup
	roleBeside = "@beside" // runs a machine and, beside it, its control plane
)

// orderName is the file of the order.
const orderName = "order.json"

// nodeName is the host name in the run's own namespace, and so the node's.
const nodeName = "e2e-node"

// order is what the outside tells the inside, in a file of the instance.
type order struct {
	// Dir is the instance's directory and Cgroup its cgroup's name.
	Dir, Cgroup string
	// Bin holds this program under its names, and the kubelet.
	Bin string
	// Agent is "polylet" or "kubelet", and Program its executable.
	Agent, Program string
	// Suite, Ginkgo and Containerd are programs; Shims is the directory with
	// containerd's shim.
	Suite, Ginkgo, Containerd, Shims string
	// Images holds the saved images, Artifacts gets the logs and the report.
	Images, Artifacts string
	// DiskBytes is the size of a disk of the run's own; 0 uses the machine's.
	DiskBytes int64
	// Logind asks for a logind that says nothing by itself.
	Logind bool
	// Token is what the suite and the agent show the apiserver.
	Token string
	// Swap is how much of that in bytes the run's machine has.
	Swap int64
	// Lift is whether that lifts the least quotas of a processor.
	Lift bool
	// Machine is whether the run has a machine of its own, with systemd and cgroup v2.
	Machine bool
	// Ginkgos and Flags are the arguments of ginkgo and of the suite.
	Ginkgos, Flags []string
}

func (o order) path(parts ...string) string {
	return filepath.Join(append([]string{o.Dir}, parts...)...)
}

func (o order) cgroupDriver() string {
	if o.Machine {
		return "systemd"
	}
	return "cgroupfs"
}

func (o order) save() (string, error) {
	path := o.path(orderName)
	return path, o.saveTo(path)
}

func (o order) saveTo(path string) error {
	data, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func readOrder(args []string) (order, error) {
	var o order
	if len(args) != 1 {
		return o, fmt.Errorf("this part of a run is started by `make e2e-node`; got %q", args)
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return o, fmt.Errorf("read what to run: %w", err)
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("read what to run from %s: %w", args[0], err)
	}
	return o, nil
}

// spaceFlags are the namespaces that a run has of its own from its first
// process on. The cgroup namespace follows once its root is known.
const spaceFlags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// enterSpace is process 1 of the new namespaces: it takes its cgroup as the root
// of a cgroup namespace and becomes roleFirst there.
func enterSpace(args []string) error {
	runtime.LockOSThread() // a namespace belongs to the thread
	o, err := readOrder(args)
	if err != nil {
		return err
	}
	if err := joinCgroup(o.Cgroup); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		return fmt.Errorf("name the node: %w", err)
	}
	return become(filepath.Join(o.Bin, "e2enode"), []string{"e2enode", roleFirst, args[0]}, os.Environ())
}

// beFirst is process 1: it makes the mounts and the network, starts the inside,
// passes signals on to it and reaps whatever loses its parent. When it ends,
// everything in the namespaces ends.
func beFirst(args []string) error {
	runtime.LockOSThread()
	o, err := readOrder(args)
	if err != nil {
		return err
	}
	if err := makeMounts(o); err != nil {
		return err
	}
	if err := makeNetwork(o); err != nil {
		return err
	}
	child := exec.Command(filepath.Join(o.Bin, "e2enode"), roleInside, args[0])
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.Env = append(os.Environ(), "PATH="+o.Bin+":"+systemPath, "TMPDIR=/tmp")
	if err := child.Start(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s) // it may just have ended
		}
	}()
	return reapUntil(child.Process.Pid)
}

// systemPath finds the machine's programs.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// reapUntil reaps children until the one with this pid has ended.
func reapUntil(pid int) error {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("reap: %w", err)
		case got == pid && status.Signaled():
			return fmt.Errorf("the inside of the run was ended by %s", status.Signal())
		case got == pid && status.ExitStatus() != 0:
			return &exitError{status.ExitStatus()}
		case got == pid:
			return nil
		}
	}
}

// enterCgroup is `@enter CGROUP PROGRAM ARGS`.
func enterCgroup(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("enter a cgroup: want its name and a program, got %q", args)
	}
	if err := joinCgroup(args[0]); err != nil {
		return err
	}
	program, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	return become(program, args[1:], os.Environ())
}

// become replaces this process by a program.
func become(path string, argv, env []string) error {
	if err := syscall.Exec(path, argv, env); err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	return nil
}
