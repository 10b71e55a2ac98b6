package admission

import (
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// checkPressure keeps pods from a node that is short of something.
func checkPressure(in Input) (Answer, bool) {
	pressure := in.Said.Holding(in.Node, in.Now)
	if len(pressure) == 0 || in.Static || podutil.Critical(in.Pod) {
		return fine()
	}
	if len(pressure) == 1 && pressure[0] == v1.NodeMemoryPressure {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		_, bad := corev1.FindMatchingUntoleratedTaint(logr.Discard(), []v1.Taint{taint}, in.Pod.Spec.Tolerations, nil, false)
		if podutil.QOS(in.Pod) != v1.PodQOSBestEffort || !bad {
			return fine()
		}
	}
	if in.Said.Said.IsZero() && in.Waited < unsaid {
		return notYet(reasonEvicted, "the Node has the condition %v, perhaps from before a restart; the pod waits for %s at most until nodestatus says what holds now", pressure, unsaid)
	}
	return rejected(reasonEvicted, "The node had condition: %v. ", pressure)
}

// checkPredicates compares the pod with the node. What it lacks only because of
// pods whose objects are gone it waits for, as long as it may; then they do not
// count any more.
func checkPredicates(in Input) (Answer, bool) {
	answer, objects := comparePredicates(in)
	if answer.Decision != podstate.Rejected || len(in.Gone) == 0 {
		return answer, objects
	}
	without := in
	without.Active = slices.DeleteFunc(slices.Clone(in.Active), func(pod *v1.Pod) bool { return in.Gone[pod.UID] })
	switch _, still := comparePredicates(without); {
	case still:
		return answer, objects
	case in.late():
		return fine()
	}
	return notYet(answer.Reason, "the pod waits for what is left of pods that were deleted by force: %s", answer.Message)
}

// comparePredicates compares the pod with the node and all that count there. A
// critical pod that only lacks resources may take them from others.
func comparePredicates(in Input) (Answer, bool) {
	if in.Node == nil && !in.Standalone && !in.Static {
		if in.late() {
			return rejected(reasonNode, "Kubelet cannot get node info: this node's object could not be read from the apiserver for %s", in.Waited.Round(time.Second))
		}
		return notYet(reasonNode, "this node's object has not been read from the apiserver yet; the pod waits for it")
	}
	if answer, objects := checkSystem(in); objects {
		return answer, true
	}
	short := shortages(in, in.Active)
	answer, objects := checkFit(in)
	switch {
	case len(short) == 0:
		return answer, objects
	case in.Resize || !in.Static && !podutil.Critical(in.Pod):
		return rejected(reasonOutOf+string(short[0].Name), "%s", short[0].text())
	case objects:
		return answer, true
	default:
		return preempt(in)
	}
}

// checkSystem compares the pod with the node's operating system and runtime.
func checkSystem(in Input) (Answer, bool) {
	// It is the pod's own label that the kubelet looks at; a selector is judged
	// with the others, or below where no Node has labels.
	if of, ok := in.Pod.Labels[v1.LabelOSStable]; ok && of != runtime.GOOS {
		return rejected(reasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	}
	if os := in.Pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return rejected(reasonOS, "Failed to admit pod as the OS field doesn't match node OS")
	}
	if sc := in.Pod.Spec.SecurityContext; in.Host.NoSupplementalGroupsPolicy && sc != nil && sc.SupplementalGroupsPolicy != nil &&
		*sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return rejected(reasonGroups, "SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)
	}
	return fine()
}

// checkFit compares the pod with the node's labels, name, ports and taints.
func checkFit(in Input) (Answer, bool) {
	if of, ok := in.Pod.Spec.NodeSelector[v1.LabelOSStable]; ok && in.Node == nil && of != runtime.GOOS {
		return rejected(reasonAffinity, messageAffinity)
	}
	if in.Node != nil {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); err != nil || !ok {
			if in.NodeOutdated && !in.late() {
				return notYet(reasonAffinity, "this node's labels do not match the pod's node affinity or selector; they are read anew before it is rejected")
			}
			return rejected(reasonAffinity, messageAffinity)
		}
		if in.Pod.Spec.NodeName != "" && in.Pod.Spec.NodeName != in.Node.Name {
			return rejected(reasonNodeName, "Predicate NodeName failed: node(s) didn't match the requested node name")
		}
	}
	if portTaken(in) {
		return rejected(reasonPorts, "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
	}
	if in.Node == nil || in.Static {
		return fine()
	}
	if _, bad := corev1.FindMatchingUntoleratedTaint(logr.Discard(), in.Node.Spec.Taints, in.Pod.Spec.Tolerations, noExecute, false); bad {
		return rejected(reasonTaint, "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate")
	}
	return fine()
}

const messageAffinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"

func noExecute(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }

// portTaken looks for host ports that an active pod has.
func portTaken(in Input) bool {
	wanted := hostPorts(in.Pod)
	if len(wanted) == 0 {
		return false
	}
	for _, pod := range in.Active {
		if pod.UID == in.Pod.UID {
			continue
		}
		for _, has := range hostPorts(pod) {
			for _, want := range wanted {
				if want.meets(has) {
					return true
				}
			}
		}
	}
	return false
}

type hostPort struct {
	protocol v1.Protocol
	ip       string
	port     int32
}

// meets says whether both cannot be served on one host.
func (p hostPort) meets(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol && (p.ip == o.ip || p.ip == anyIP || o.ip == anyIP)
}

const anyIP = "0.0.0.0"

// hostPorts are the ports of the host that a pod's long-running containers take.
func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := hostPort{protocol: p.Protocol, ip: p.HostIP, port: p.HostPort}
			if h.protocol == "" {
				h.protocol = v1.ProtocolTCP
			}
			if h.ip == "" { // "::" is all of the other family only
				h.ip = anyIP
			}
			out = append(out, h)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podutil.Sidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
