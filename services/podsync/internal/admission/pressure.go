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
	// Until is when this does not count any more; zero: nobody has said anything.
	Until time.Time
}

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
