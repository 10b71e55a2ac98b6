package execreaper

import (
	"math"
	"slices"
)

// roots returns those of a container's processes that were started from
// outside: commands of exec. level is that of the reader's PID namespace.
//
// What was started from outside has a parent outside, and that is in another
// PID namespace: an orphan gets a parent of its own. Only in the host's PID
// namespace an orphan may get the same parent as a command; there a root leads
// its session too, as the runtimes make it and few orphans do. The oldest process
// is the container's own, and no root.
func roots(all []Process, level int) []Process {
	inside := make(map[int]bool, len(all))
	init := uint64(math.MaxUint64)
	for _, p := range all {
		inside[p.PID], init = true, min(init, p.Start)
	}
	var out []Process
	for _, p := range all {
		entered := p.Level > p.ParentLevel
		onHost := p.Level == level && p.PID == p.SID
		if !p.Zombie && !p.First && p.Start > init && !inside[p.Parent] && p.ParentLevel > 0 && (entered || onHost) {
			out = append(out, p)
		}
	}
	return out
}

// family returns those of the processes that are from, and all that descend
// from them.
func family(all, from []Process) []Process {
	children := make(map[int][]Process, len(all))
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var out []Process
	for _, p := range all {
		if slices.ContainsFunc(from, p.same) {
			out = append(out, p)
		}
	}
	seen := make(map[int]bool, len(out))
	for i := 0; i < len(out); i++ {
		if seen[out[i].PID] {
			out = slices.Delete(out, i, i+1)
			i--
			continue
		}
		seen[out[i].PID] = true
		out = append(out, children[out[i].PID]...)
	}
	return slices.DeleteFunc(out, func(p Process) bool { return p.Zombie })
}

func (p Process) same(q Process) bool { return p.PID == q.PID && p.Start == q.Start }
