package collector

import (
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/notice"
	"github.com/polylet/polylet/services/stats/internal/signal"
)

// CgroupDirs says where cgroups are; *cgroup.Hierarchy has it.
type CgroupDirs interface {
	Unified() bool
	// Dir is a cgroup's directory for a controller; empty without it.
	Dir(controller, name string) string
}

// Notices has the kernel tell when memory may be short; nil when it does not. Close ends
// that.
func (c *Collector) Notices(log klog.Logger) *notice.Notices {
	if c.deps.Cgroups == nil {
		return nil
	}
	n, err := notice.Open()
	if err != nil {
		log.Error(err, "The kernel is not asked to tell when memory is short, it is measured every second")
		return nil
	}
	if err := n.Stalls(filepath.Join(string(c.deps.Proc), "pressure", "memory")); err != nil {
		log.V(2).Info("The kernel does not tell when tasks stall for memory", "err", err)
	}
	if c.deps.Cgroups.Unified() {
		// Its memory.events would tell of each container that has come to its own limit,
		// where those that read files are all the time.
		if err := n.Changes(filepath.Join(c.deps.Cgroups.Dir("memory", c.podsCgroup()), "memory.events.local")); err != nil {
			log.V(2).Info("The kernel does not tell when the pods have come to their limit", "err", err)
		}
	}
	return n
}

// Arm has n told when memory crosses one of the marks, by the newest signals; all: it
// will be. Only version 1 of cgroups can, for who may write there.
func (c *Collector) Arm(n *notice.Notices, marks []signal.Mark, now []signal.Signal) (all bool) {
	if n == nil || c.deps.Cgroups.Unified() {
		return false
	}
	var levels []notice.Level
	for _, m := range marks {
		name := ""
		switch {
		case m.OfNode():
			name = "/"
		case m.OfPods():
			name = c.podsCgroup()
		default:
			continue
		}
		dir := c.deps.Cgroups.Dir("memory", name)
		s, measured := m.Of(now)
		mark := m.Level(s.Capacity)
		if !measured || dir == "" || s.Capacity <= mark {
			return false
		}
		// What can be given back at once is not counted against the mark.
		levels = append(levels, notice.Level{Dir: dir, Bytes: s.Capacity - mark + s.Idle})
	}
	return n.Arm(levels) == nil
}
