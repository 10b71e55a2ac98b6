package podsync

import (
	"context"
	"io"
	"maps"
	"os"

	"google.golang.org/grpc"

	"github.com/polylet/polylet/services/podsync/internal/host/alone"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/scsi"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// DialRuntime returns a connection to a runtime's endpoint; it connects when it
// is used, and again within a second when the runtime comes back.
func DialRuntime(endpoint string) (*grpc.ClientConn, error) { return cri.Dial(endpoint) }

// Apart does one call of podsync's if this process was begun for that, and says so: what
// waits for somebody who may not answer is done apart from podsync, by its program anew.
// args are those of the process, without its name; code is what it ends with.
func Apart(args []string, out io.Writer) (code int, is bool) {
	if len(args) == 0 || args[0] != apart.Flag {
		return 0, false
	}
	calls := mount.Calls()
	maps.Copy(calls, volume.Calls())
	maps.Copy(calls, ownership.Calls())
	maps.Copy(calls, scsi.Calls())
	return apart.Main(args, calls, out), true
}

func (p MachinePolicy) kernel() kernel.Config {
	cfg := kernel.Config{FailSwapOn: p.FailSwapOn, FailCgroupV1: p.FailCgroupV1, Tunables: kernel.Modify}
	switch {
	case p.ProtectKernelDefaults:
		cfg.Tunables = kernel.Refuse
	case p.LeaveKernelSettings:
		cfg.Tunables = kernel.Leave
	}
	return cfg
}

// CheckMachine says why podsync would not run on this machine, and what to do;
// nil when it would. It changes nothing.
func CheckMachine(p MachinePolicy) error { return kernel.Machine{}.Check(p.kernel()) }

// CheckAlone says which other agent works in a root directory, and what to do; nil
// when none does.
func CheckAlone(ctx context.Context, rootDir string) error { return alone.Check(ctx, rootDir) }

// EnterCgroup moves this process into the cgroup of the node's agent
// (kubeletCgroups), with all that it starts from then on. Under systemd it stays
// in its unit. An empty name moves nothing.
func EnterCgroup(name string) error {
	if name == "" {
		return nil
	}
	return cgroup.Enter(os.Getpid(), name)
}

// AgentCgroup is the cgroup that this process, one of the agent's, is counted in:
// configured (kubeletCgroups) where it lies in there; else the slice or the unit
// that systemd keeps it in. It is configured when it is neither.
func AgentCgroup(configured string) string {
	own, err := cgroup.Of(os.Getpid())
	if err != nil {
		return configured
	}
	return cgroup.Agent(own, configured)
}
