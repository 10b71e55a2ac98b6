package admit

import (
	"fmt"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// checkResources compares what the pod asks for with what the active pods leave.
func checkResources(in Input) (reason, message string) {
	allocatable := in.Allocatable
	if allocatable == nil && in.Node != nil {
		allocatable = in.Node.Status.Allocatable
	}
	if allocatable == nil {
		return "", ""
	}
	used, pods := usedBy(in)
	if limit, bounded := allocatable[v1.ResourcePods]; bounded && int64(pods)+1 > limit.Value() {
		return outOf(v1.ResourcePods, 1, int64(pods), limit.Value())
	}
	want := podresource.PodRequests(in.Pod, podresource.PodResourcesOptions{})
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, string(name))
	}
	sort.Strings(names)
	for _, n := range names {
		name := v1.ResourceName(n)
		limit, bounded := allocatable[name]
		asked := want[name]
		if !bounded || asked.IsZero() {
			continue
		}
		total := asked.DeepCopy()
		total.Add(used[name])
		if total.Cmp(limit) > 0 {
			return outOf(name, value(name, asked), value(name, used[name]), value(name, limit))
		}
	}
	return "", ""
}

// usedBy sums up the requests of the other active pods and counts them.
func usedBy(in Input) (v1.ResourceList, int) {
	used, pods := v1.ResourceList{}, 0
	for _, pod := range in.Active {
		if pod.UID == in.Pod.UID {
			continue
		}
		pods++
		for name, q := range podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	return used, pods
}

// value is a quantity as the message shows it: CPU in thousandths.
func value(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func outOf(name v1.ResourceName, asked, used, capacity int64) (reason, message string) {
	return reasonOutOf + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, asked, used, capacity)
}

// safeSysctls may be set by any pod: they are the pod's own and harm nobody.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
var safeSysctls = map[string]bool{
	"kernel.shm_rmid_forced": true, "net.ipv4.ip_local_port_range": true, "net.ipv4.tcp_syncookies": true,
	"net.ipv4.ping_group_range": true, "net.ipv4.ip_unprivileged_port_start": true, "net.ipv4.ip_local_reserved_ports": true,
	"net.ipv4.tcp_keepalive_time": true, "net.ipv4.tcp_fin_timeout": true, "net.ipv4.tcp_keepalive_intvl": true,
	"net.ipv4.tcp_keepalive_probes": true, "net.ipv4.tcp_rmem": true, "net.ipv4.tcp_wmem": true,
}

// checkSysctls refuses what is neither safe nor allowed by the operator, and
// what would not be the pod's own.
func checkSysctls(in Input) (reason, message string) {
	if in.Pod.Spec.SecurityContext == nil {
		return "", ""
	}
	for _, s := range in.Pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		network := strings.HasPrefix(name, "net.")
		switch {
		case !safeSysctls[name] && !allowed(name, in.AllowedUnsafeSysctls):
			return reasonSysctl, fmt.Sprintf("forbidden sysctl: %q not allowlisted", s.Name)
		case network && in.Pod.Spec.HostNetwork:
			return reasonSysctl, fmt.Sprintf("forbidden sysctl: %q not allowed with host net enabled", s.Name)
		case !network && in.Pod.Spec.HostIPC:
			return reasonSysctl, fmt.Sprintf("forbidden sysctl: %q not allowed with host ipc enabled", s.Name)
		}
	}
	return "", ""
}

func allowed(name string, patterns []string) bool {
	for _, p := range patterns {
		p = strings.ReplaceAll(p, "/", ".")
		if prefix, wild := strings.CutSuffix(p, "*"); name == p || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
