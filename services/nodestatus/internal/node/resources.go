package node

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/resourcename"
)

// capacity is what the machine has. What others added to old (extended
// resources) stays; huge pages of sizes that are gone go.
func capacity(cfg Config, m *Machine, old v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, quantity := range old {
		if !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = quantity
		}
	}
	out[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(m.Cores)*1000, resource.DecimalSI)
	out[v1.ResourceMemory] = binary(m.MemoryBytes)
	if out[v1.ResourceEphemeralStorage] = binary(m.RootFilesystemBytes); cfg.NoLocalStorage {
		delete(out, v1.ResourceEphemeralStorage)
	}
	pods := int64(cfg.MaxPods)
	if cfg.PodsPerCore > 0 {
		pods = min(pods, int64(m.Cores)*int64(cfg.PodsPerCore))
	}
	out[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	for _, pages := range m.HugePages {
		size := binary(pages.SizeBytes)
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = binary(pages.SizeBytes * pages.Count)
	}
	return out
}

// withoutDevices takes from list the devices that nobody serves: of a resource whose
// plugin is gone the node has 0, and after a restart of the machine of all that somebody
// else has added and no kubelet of this machine can have. That they stay named tells the
// scheduler that they were the node's own, and not the cluster's.
func withoutDevices(list v1.ResourceList, left *Devices, rebooted bool) {
	none := *resource.NewQuantity(0, resource.DecimalSI)
	if left != nil {
		for _, name := range left.Resources {
			list[name] = none
		}
	}
	if !rebooted || left != nil && left.Checkpoint {
		return
	}
	for name := range list {
		if resourcename.Extended(name) {
			list[name] = none
		}
	}
}

// awaitsDevices says whether to wait for podsync to say what a kubelet has left of its
// device plugins: which of the extended resources are theirs, and which others count, is
// not known before. A podsync that is away is not waited for for long.
func awaitsDevices(facts Facts, list v1.ResourceList) bool {
	if facts.Devices != nil || facts.Runtime.Known || facts.Runtime.Unanswered >= PeerGrace {
		return false
	}
	for name := range list {
		if resourcename.Extended(name) {
			return true
		}
	}
	return false
}

// allocatable is the capacity without what is reserved; memory also without
// huge pages. Nothing is below 0.
func allocatable(reserved, capacity v1.ResourceList) v1.ResourceList {
	out := make(v1.ResourceList, len(capacity))
	for name, quantity := range capacity {
		value := quantity.DeepCopy()
		if r, ok := reserved[name]; ok {
			value.Sub(r)
		}
		out[name] = atLeastZero(value)
	}
	memory := out[v1.ResourceMemory]
	for name, quantity := range out {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(quantity)
		}
	}
	if _, ok := out[v1.ResourceMemory]; ok {
		out[v1.ResourceMemory] = atLeastZero(memory)
	}
	return out
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// reserved sums what is kept from pods: for the system, for the agent, and
// what the hard eviction thresholds keep free.
func reserved(cfg Config, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	add := func(name v1.ResourceName, quantity resource.Quantity) {
		sum := out[name]
		sum.Add(quantity)
		out[name] = sum
	}
	for _, list := range []v1.ResourceList{cfg.KubeReserved, cfg.SystemReserved} {
		for name, quantity := range list {
			add(name, quantity)
		}
	}
	for _, t := range cfg.Thresholds {
		var name v1.ResourceName
		switch t.Signal {
		case "memory.available":
			name = v1.ResourceMemory
		case "nodefs.available":
			name = v1.ResourceEphemeralStorage
		}
		if name == "" || !t.Hard || t.Soft {
			continue
		}
		total := capacity[name]
		add(name, binary(t.Of(uint64(total.Value()))))
	}
	return out
}

// pids is the kubelet's name of processes in what is reserved; the Node has none such.
const pids v1.ResourceName = "pid"

// CheckReservation returns an error when more is reserved than the machine has:
// no pod could ever run.
func CheckReservation(cfg Config, m *Machine) error {
	total := capacity(cfg, m, nil)
	if m.MaxPIDs > 0 {
		total[pids] = *resource.NewQuantity(m.MaxPIDs, resource.DecimalSI)
	}
	var problems []string
	for name, r := range reserved(cfg, total) {
		have, ok := total[name]
		if ok && r.Cmp(have) > 0 {
			problems = append(problems, fmt.Sprintf("%s: %s reserved of %s", name, r.String(), have.String()))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("more is reserved than this machine has (%s); lower kubeReserved, systemReserved or evictionHard", strings.Join(problems, "; "))
}
