package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// option is one of a manager's policy options.
type option struct {
	// gate has to be on for it; empty is none.
	gate string
	// number says that its value is a number, not true or false.
	number bool
}

// cpuOptions are the CPU manager's.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
func cpuOptions() map[string]option {
	return map[string]option{
		"full-pcpus-only": {}, "strict-cpu-reservation": {}, "prefer-align-cpus-by-uncorecache": {},
		"distribute-cpus-across-numa":  {gate: "CPUManagerPolicyBetaOptions"},
		"align-by-socket":              {gate: "CPUManagerPolicyAlphaOptions"},
		"distribute-cpus-across-cores": {gate: "CPUManagerPolicyAlphaOptions"},
	}
}

// topologyOptions are the topology manager's.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/
func topologyOptions() map[string]option {
	return map[string]option{"prefer-closest-numa-nodes": {}, "max-allowable-numa-nodes": {number: true}}
}

// validateManagers checks what the managers of processors, memory and topology
// are to do.
func validateManagers(p *problems, c *kubeletv1beta1.KubeletConfiguration, gates map[string]bool) {
	p.add(oneOf(c.CPUManagerPolicy, "none", "static"), "cpuManagerPolicy", c.CPUManagerPolicy, "none or static")
	p.add(c.CPUManagerReconcilePeriod.Duration > 0, "cpuManagerReconcilePeriod", c.CPUManagerReconcilePeriod.Duration.String(), "more than 0")
	p.add(len(c.CPUManagerPolicyOptions) == 0 || c.CPUManagerPolicy == "static", "cpuManagerPolicyOptions", c.CPUManagerPolicyOptions, "remove them, or set cpuManagerPolicy to static")
	validateOptions(p, "cpuManagerPolicyOptions", c.CPUManagerPolicyOptions, cpuOptions(), gates)
	if c.CPUManagerPolicy == "static" && c.ReservedSystemCPUs == "" {
		reserved := quantity(c.KubeReserved["cpu"])
		reserved.Add(quantity(c.SystemReserved["cpu"]))
		p.add(reserved.Sign() > 0, "cpuManagerPolicy", c.CPUManagerPolicy, "the static policy requires systemReserved.cpu + kubeReserved.cpu to be greater than zero, or reservedSystemCPUs")
	}
	p.add(oneOf(c.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy, kubeletv1beta1.StaticMemoryManagerPolicy),
		"memoryManagerPolicy", c.MemoryManagerPolicy, "None or Static")
	validateReservedMemory(p, c)
	p.add(oneOf(c.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy, kubeletv1beta1.BestEffortTopologyManagerPolicy,
		kubeletv1beta1.RestrictedTopologyManagerPolicy, kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy),
		"topologyManagerPolicy", c.TopologyManagerPolicy, "none, best-effort, restricted or single-numa-node")
	p.add(oneOf(c.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope, kubeletv1beta1.PodTopologyManagerScope),
		"topologyManagerScope", c.TopologyManagerScope, "container or pod")
	validateOptions(p, "topologyManagerPolicyOptions", c.TopologyManagerPolicyOptions, topologyOptions(), gates)
}

func validateOptions(p *problems, field string, given map[string]string, known map[string]option, gates map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		o, there := known[name]
		if !there {
			p.add(false, field, name, "one of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			continue
		}
		p.add(o.gate == "" || gates[o.gate], field+"."+name, given[name], "it needs the feature gate "+o.gate)
		if o.number {
			n, err := strconv.Atoi(given[name])
			p.add(err == nil && n > 0, field+"."+name, given[name], "a number above 0")
			continue
		}
		_, err := strconv.ParseBool(given[name])
		p.add(err == nil, field+"."+name, given[name], "true or false")
	}
}

// validateReservedMemory checks what is reserved on each NUMA node; with the
// Static policy it is as much as is kept from pods for other reasons.
func validateReservedMemory(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	total := resource.Quantity{}
	seen := map[string]bool{}
	for i, node := range c.ReservedMemory {
		field := fmt.Sprintf("reservedMemory[%d]", i)
		p.add(node.NumaNode >= 0, field+".numaNode", node.NumaNode, "0 or more")
		for _, name := range slices.Sorted(maps.Keys(node.Limits)) {
			amount := node.Limits[name]
			at := field + ".limits." + string(name)
			p.add(name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix), at, string(name), "memory or hugepages-<size>")
			p.add(amount.Sign() > 0, at, amount.String(), "more than 0")
			key := fmt.Sprintf("%d %s", node.NumaNode, name)
			p.add(!seen[key], at, amount.String(), fmt.Sprintf("NUMA node %d has this resource twice: name it once", node.NumaNode))
			seen[key] = true
			if name == v1.ResourceMemory {
				total.Add(amount)
			}
		}
	}
	hard := c.EvictionHard["memory.available"]
	if c.MemoryManagerPolicy != kubeletv1beta1.StaticMemoryManagerPolicy || strings.HasSuffix(hard, "%") {
		return // a percentage is not known here
	}
	kept := quantity(c.KubeReserved["memory"])
	kept.Add(quantity(c.SystemReserved["memory"]))
	kept.Add(quantity(hard))
	p.add(total.Cmp(kept) == 0, "reservedMemory", total.String(),
		fmt.Sprintf("with memoryManagerPolicy Static all of memory together is kubeReserved + systemReserved + evictionHard, which is %s", kept.String()))
}

// validateQOSReserved checks what is kept for the pods of better classes.
func validateQOSReserved(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	for _, name := range slices.Sorted(maps.Keys(c.QOSReserved)) {
		p.add(name == "memory", "qosReserved", name, "memory, the only resource that can be reserved")
		number, percent := strings.CutSuffix(c.QOSReserved[name], "%")
		n, err := strconv.Atoi(number)
		p.add(percent && err == nil && n >= 0 && n <= 100, "qosReserved."+name, c.QOSReserved[name], "a percentage from 0% to 100%")
	}
}

// quantity is what a text says, 0 when it is none; another check says so then.
func quantity(text string) resource.Quantity {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}
