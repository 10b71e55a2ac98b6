package nodeinfo

import (
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/host/capacity"
)

// PodCIDR is the network of the node's pods; empty when nobody has given it one yet.
func (n *Node) PodCIDR() string {
	if object := n.object.Load(); object != nil {
		return object.Spec.PodCIDR
	}
	return n.cfg.PodCIDR
}

// Capacity is the Node object's, or the machine's when there is none.
func (n *Node) Capacity() v1.ResourceList {
	if object := n.object.Load(); object != nil && len(object.Status.Capacity) > 0 {
		return object.Status.Capacity
	}
	list := v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(n.cfg.MaxPods, resource.DecimalSI),
	}
	if total := capacity.Memory(); total > 0 {
		list[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	}
	return list
}

// Allocatable is what pods may use: the Node object's, or the capacity without what
// is reserved.
func (n *Node) Allocatable() v1.ResourceList {
	if object := n.object.Load(); object != nil && len(object.Status.Allocatable) > 0 {
		return object.Status.Allocatable
	}
	list := n.Capacity().DeepCopy()
	less := func(name v1.ResourceName, q *resource.Quantity) {
		if have, ok := list[name]; ok {
			have.Sub(*q)
			list[name] = have
		}
	}
	less(v1.ResourceCPU, resource.NewMilliQuantity(n.cfg.ReservedMilliCPU, resource.DecimalSI))
	less(v1.ResourceMemory, resource.NewQuantity(n.cfg.ReservedMemoryBytes, resource.BinarySI))
	return list
}

// ShuttingDown says whether the Node object says so: who follows the machine's
// shutdown writes it into the Ready condition. What was written before the machine's
// present start says nothing of it.
func (n *Node) ShuttingDown() bool { return shuttingDown(n.object.Load(), n.cfg.BootID) }

func shuttingDown(object *v1.Node, bootID string) bool {
	if object == nil || object.Status.NodeInfo.BootID != bootID {
		return false
	}
	for _, c := range object.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "node is shutting down") {
			return true
		}
	}
	return false
}
