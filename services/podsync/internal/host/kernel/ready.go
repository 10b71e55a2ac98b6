package kernel

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/health"
)

// Events records events on the node; *event.Recorder has it.
type Events interface {
	Node(eventType, reason, message string)
}

// MakeReady refuses a machine that pods may not run on, makes the others ready
// for them, and says what is not as it should be.
func (m Machine) MakeReady(log logr.Logger, cfg Config, events Events, h health.Reporter) error {
	if err := m.Check(cfg); err != nil {
		return fmt.Errorf("this machine is not fit for pods: %w", err)
	}
	if !m.Unified() {
		log.Info(CgroupV1Warning) // nodestatus sends the event
	}
	if on, err := m.SwapOn(); err == nil && on && !NoSwapMounts() {
		events.Node(v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk", SwapWarning)
	}
	if cfg.Tunables != Modify {
		return nil
	}
	changed, err := m.Tune()
	if len(changed) > 0 {
		log.Info("Set kernel settings as Kubernetes needs them", "changed", changed)
	}
	message := ""
	if err != nil {
		message = fmt.Sprintf("kernel settings are not as Kubernetes needs them: %v: set them with sysctl.d on the host", err)
	}
	h.Set("kernel settings", err == nil, message)
	return nil
}
