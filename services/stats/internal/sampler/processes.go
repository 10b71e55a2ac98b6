package sampler

import (
	"cmp"
	"path"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
)

// Processes is a container and the processes in its cgroup.
type Processes struct {
	Target
	PIDs []int
}

// Processes returns the containers that podsync has named, with their processes.
func (m *Meter) Processes() ([]Processes, error) {
	targets, err := list(m.deps.Cgroups, m.roots, m.deps.Names.View())
	if err != nil {
		return nil, err
	}
	var out []Processes
	for _, t := range targets {
		if t.Kind == Container && t.Container != "" {
			out = append(out, Processes{t, m.deps.Cgroups.PIDs(t.Cgroup)})
		}
	}
	return out, nil
}

// Beside returns the pods, by UID, that have processes in other containers than those whose
// ids are known: in some that podsync has not named yet, or of which it has not said that
// they run.
func (m *Meter) Beside(known map[string]bool) (uids map[string]bool, err error) {
	targets, err := list(m.deps.Cgroups, m.roots, m.deps.Names.View())
	if err != nil {
		return nil, err
	}
	uids = map[string]bool{}
	for _, t := range targets {
		uid := cmp.Or(t.Pod.UID, cgroup.PodUID(path.Dir(t.Cgroup)))
		if t.Kind == Container && !known[t.ID] && uid != "" && !uids[uid] && len(m.deps.Cgroups.PIDs(t.Cgroup)) > 0 {
			uids[uid] = true
		}
	}
	return uids, nil
}
