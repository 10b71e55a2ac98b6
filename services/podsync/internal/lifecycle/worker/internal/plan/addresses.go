package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// addresses sets the host's and the pod's IPs. As long as the node's are not known,
// right after podsync's start, those that the pod was told to have stand.
func (p *planner) addresses(st *v1.PodStatus) {
	for i, ip := range p.s.Node.IPs {
		if i == 0 {
			st.HostIP = ip
		}
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	if len(p.s.Node.IPs) == 0 {
		st.HostIP, st.HostIPs = p.s.Reported.HostIP, p.s.Reported.HostIPs
	}
	ips := p.podIPs()
	if len(ips) == 0 && (p.out.Terminating || p.s.Pod.Spec.HostNetwork) {
		st.PodIP, st.PodIPs = p.s.Reported.PodIP, p.s.Reported.PodIPs
		return
	}
	for i, ip := range ips {
		if i == 0 {
			st.PodIP = ip
		}
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

func (p *planner) podIPs() []string {
	if p.s.Pod.Spec.HostNetwork {
		return p.s.Node.IPs
	}
	if len(p.s.Observed.Sandboxes) > 0 && p.s.Observed.Sandboxes[0].Ready {
		return p.shownIPs(p.s.Observed.Sandboxes[0].IPs)
	}
	return nil
}

// shownIPs are those of a sandbox in the order of the node's families, or, as long as
// the node's addresses are not known, in that which the pod was told to have.
func (p *planner) shownIPs(ips []string) []string {
	like := p.s.Node.IPs
	if len(like) == 0 && p.s.Reported.PodIP != "" {
		like = []string{p.s.Reported.PodIP}
	}
	return podutil.ShownIPs(ips, like)
}

// awaitsAddress says whether the container is to be given an address, for all of its
// life, that is not known yet. A node that is found to have none gives a pod on its
// network none: that may be the cloud's controller, which writes the addresses.
func (p *planner) awaitsAddress(v *view) bool {
	if len(p.s.Node.IPs) > 0 {
		return false
	}
	known := p.s.Node.IPsKnown || p.s.Static && p.s.Node.IPsSought         // the apiserver may be a static pod
	pods := !known && (p.s.Pod.Spec.HostNetwork || len(p.sandbox.IPs) > 1) // which comes first is the node's to say
	if !slices.ContainsFunc(v.spec.Env, func(e v1.EnvVar) bool {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
			return false
		}
		switch e.ValueFrom.FieldRef.FieldPath {
		case "status.hostIP", "status.hostIPs":
			return true
		case "status.podIP", "status.podIPs":
			return pods
		}
		return false
	}) {
		return false
	}
	p.wait("address", v.spec.Name, "container "+v.spec.Name+" is to be told an address in its environment, and the node's is not known yet",
		"polylet status says why; with --cloud-provider=external the cloud's controller has to write it into the Node, otherwise set --node-ip", time.Time{})
	return true
}
