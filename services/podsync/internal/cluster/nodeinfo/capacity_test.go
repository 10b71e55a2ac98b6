package nodeinfo

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWithoutANodeObjectPodsMayUseTheMachineWithoutWhatIsReserved(t *testing.T) {
	n := New(Config{MaxPods: 20, PodCIDR: "10.1.0.0/24", ReservedMilliCPU: 100, ReservedMemoryBytes: 1 << 20}, Deps{})
	has, may := n.Capacity(), n.Allocatable()
	if has.Pods().Value() != 20 || has.Cpu().MilliValue()-may.Cpu().MilliValue() != 100 || has.Memory().Value()-may.Memory().Value() != 1<<20 || may.Memory().Value() <= 0 {
		t.Errorf("of %v pods may use %v", has, may)
	}
	if n.PodCIDR() != "10.1.0.0/24" || n.ShuttingDown() {
		t.Errorf("network %q, going down %v", n.PodCIDR(), n.ShuttingDown())
	}
	object := &v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.2.0.0/24"}, Status: v1.NodeStatus{
		Capacity: v1.ResourceList{v1.ResourcePods: resource.MustParse("7")}, Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("5")},
	}}
	told := 0
	n.SubscribeAllocatable(func() { told++ })
	n.store(object)
	again := object.DeepCopy()
	again.Labels = map[string]string{"new": ""}
	n.store(again)
	if has, may := n.Capacity(), n.Allocatable(); has.Pods().Value() != 7 || may.Pods().Value() != 5 || n.PodCIDR() != "10.2.0.0/24" {
		t.Errorf("with an object: %v, %v, %q", has, may, n.PodCIDR())
	}
	if told != 1 {
		t.Errorf("told %d times that pods may use something else", told)
	}
}
