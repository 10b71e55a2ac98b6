// Command e2enode is behind `make e2e-node`: it runs the upstream node
// end-to-end suite (k8s.io/kubernetes test/e2e_node) against this checkout's
// polylet, or against the upstream kubelet, in namespaces and cgroups of the
// run's own, and writes down what passed. It must never touch a runtime, an
// agent or a network that it did not start, never leave anything behind, and
// never leave a failure out of its report.
//
// It is several programs in one, so that a run needs only one to be built: in a virtual
// machine it is what that was booted for (see machine.go), under the names sudo, systemctl, systemd-run and journalctl it stands in for these
// (see standin.go), and its first argument chooses the others (see roles).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/vm"
)

// options are the command line's flags.
type options struct {
	agent, group, focus, skipFile string
	vm                            bool
	seed                          int
	procs                         int
	timeout                       time.Duration
}

// roles are the parts of a run that are processes of their own.
var roles = map[string]func(args []string) error{
	roleInit: enterSpace, roleFirst: beFirst, roleInside: inside, roleFar: beFarEnd, roleEnter: enterCgroup, roleSweep: sweep, roleBeside: beside,
}

func main() {
	if filepath.Base(os.Args[0]) == vm.Program {
		exit(inMachine())
	}
	if standIn, ok := standIns[filepath.Base(os.Args[0])]; ok {
		os.Exit(standIn(os.Args[1:]))
	}
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			exit(role(os.Args[2:]))
		}
	}
	// The kernel's parent-death signal is sent when the thread that started the
	// child ends.
	runtime.LockOSThread()
	var o options
	flag.StringVar(&o.agent, "agent", agentPolylet, `"polylet", or "kubelet" to write down what the upstream agent passes on this machine`)
	flag.StringVar(&o.group, "group", "", "`groups` to run, one after the other, with commas; empty runs all that are not marked as coming later: "+strings.Join(groupNames(), ", "))
	flag.StringVar(&o.focus, "focus", "", "`regexp` of the tests to run within the groups")
	flag.BoolVar(&o.vm, "vm", false, "run in a virtual machine with systemd and cgroup v2 instead of in namespaces of this one")
	flag.StringVar(&o.skipFile, "skip-file", "", "`file` with what is left out, and why, relative to the checkout; empty is test/e2enode/skip.txt, or skip-vm.txt there with -vm")
	flag.IntVar(&o.seed, "seed", 1, "`number` that fixes the order of the tests")
	flag.IntVar(&o.procs, "procs", 0, "`number` of tests that run at once; 0 leaves it to the group")
	flag.DurationVar(&o.timeout, "timeout", 0, "`time` after which a group is interrupted; 0 leaves it to the group")
	flag.Parse()
	if o.skipFile == "" {
		o.skipFile = map[bool]string{false: "test/e2enode/skip.txt", true: "test/e2enode/skip-vm.txt"}[o.vm]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, o))
}

// exit ends the process; an agent or suite that was run sets the code by itself.
func exit(err error) {
	var ended *exitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &ended):
		os.Exit(ended.code)
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// exitError passes the exit code of a child on.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// say prints one line of progress.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
