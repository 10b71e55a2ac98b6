package admission

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Pressures are the types of the node conditions that say what a node is short of.
func Pressures() []v1.NodeConditionType {
	return []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}
}

// Pressure is what somebody who measures has said that the node is short of.
type Pressure struct {
	// Conditions are those of Pressures that hold; empty: the node is short of nothing.
	Conditions []v1.NodeConditionType
	// Said is when that was; zero: nobody has said anything since podsync started.
	Said time.Time
	// Until is when this does not count any more.
	Until time.Time
}

// unsaid is how long a pod waits for somebody who measures, before the Node alone speaks
// against it: what it says may be from before a restart of all, and a pod that is
// rejected stays so.
const unsaid = 10 * time.Second

// Holding are the conditions that hold: those that were said as long as that counts,
// else those of the Node, which may be nil.
func (p Pressure) Holding(node *v1.Node, now time.Time) []v1.NodeConditionType {
	if now.Before(p.Until) {
		return p.Conditions
	}
	if node == nil {
		return nil
	}
	var holding []v1.NodeConditionType
	for _, c := range node.Status.Conditions {
		if slices.Contains(Pressures(), c.Type) && c.Status == v1.ConditionTrue {
			holding = append(holding, c.Type)
		}
	}
	return holding
}
