package sampler

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
