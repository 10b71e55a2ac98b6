package podsync

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/alone"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// MachinePolicy says what the machine must be like for pods to run on it.
type MachinePolicy struct {
	// FailSwapOn and FailCgroupV1 refuse a machine that swaps, or whose main
	// hierarchy is cgroup v1.
	FailSwapOn, FailCgroupV1 bool
	// ProtectKernelDefaults refuses a machine whose kernel settings are not as
	// Kubernetes needs them; else they are set, unless LeaveKernelSettings.
	ProtectKernelDefaults, LeaveKernelSettings bool
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

// holdMachine keeps other agents off the node's directory until release is called.
func (s *Service) holdMachine(ctx context.Context) (release func(), err error) {
	if s.cfg.Machine == nil { // there is no machine: a simulated one
		return func() {}, nil
	}
	return alone.Hold(ctx, s.cfg.RootDir)
}

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

// readyMachine refuses a machine that pods may not run on, makes the others ready
// for them, and says what is not as it should be.
func (s *Service) readyMachine(log logr.Logger) error {
	if s.cfg.Machine == nil {
		return nil
	}
	cfg, machine := s.cfg.Machine.kernel(), s.deps.Machine
	if err := machine.Check(cfg); err != nil {
		return fmt.Errorf("this machine is not fit for pods: %w", err)
	}
	if !machine.Unified() {
		log.Info(kernel.CgroupV1Warning) // nodestatus sends the event
	}
	if on, err := machine.SwapOn(); err == nil && on && !kernel.NoSwapMounts() {
		s.events.Node(v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk", kernel.SwapWarning)
	}
	if cfg.Tunables != kernel.Modify {
		return nil
	}
	changed, err := machine.Tune()
	if len(changed) > 0 {
		log.Info("Set kernel settings as Kubernetes needs them", "changed", changed)
	}
	message := ""
	if err != nil {
		message = fmt.Sprintf("kernel settings are not as Kubernetes needs them: %v: set them with sysctl.d on the host", err)
	}
	s.deps.Health.Set("kernel settings", err == nil, message)
	return nil
}
