package kubeletconfig

import (
	"slices"
	"strings"
)

// Gate is a feature gate as it is in effect.
type Gate struct {
	// Name is the gate's; Stage is ALPHA, BETA or DEPRECATED, empty when it is
	// generally available.
	Name, Stage string
	// On is whether it is on.
	On bool
}

// Gates returns all gates in name order.
func (l *Loaded) Gates() []Gate {
	var out []Gate
	for _, group := range gateGroups() {
		stage := strings.ToUpper(group.stage)
		if stage == "GA" {
			stage = ""
		}
		for _, name := range strings.Fields(group.names) {
			out = append(out, Gate{Name: name, Stage: stage, On: l.gates[name]})
		}
	}
	slices.SortFunc(out, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return out
}
