// Package admit owns the decision whether a pod may run on this node: a pure
// function over the pod, the node and the pods that run already. It must never
// do I/O, read a clock or keep state.
package admit

import (
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/polylet/polylet/services/podsync/internal/plan"
)

// Input is all that the decision depends on.
type Input struct {
	// Pod asks for admission.
	Pod *v1.Pod
	// Static is true for pods from a file or URL.
	Static bool
	// Standalone is true when there is no apiserver; there is no Node object then.
	Standalone bool
	// Node is this node's object; nil when it is not synced yet, or standalone.
	Node *v1.Node
	// Waited is how long the pod has waited for Node.
	Waited time.Duration
	// NodeDeadline is how long it may wait; forever when zero.
	NodeDeadline time.Duration
	// Allocatable is the node's own account of what pods may use. When nil,
	// Node.Status.Allocatable is taken. A resource that is not named in it has
	// no bound, except extended resources, which are not the node's to judge.
	Allocatable v1.ResourceList
	// Active are the admitted pods that have not ended; Pod may be among them
	// and is not counted.
	Active []*v1.Pod
	// AllowedUnsafeSysctls are patterns such as "net.core.*".
	AllowedUnsafeSysctls []string
}

// The reasons of a rejection.
// Source: kubelet-surface 4.2.
const (
	reasonNode      = "InvalidNodeInfo"
	reasonOS        = "PodOSNotSupported"
	reasonOSLabel   = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonNodeName  = "NodeName"
	reasonAffinity  = "NodeAffinity"
	reasonTaint     = "TaintToleration"
	reasonPorts     = "NodePorts"
	reasonSysctl    = "SysctlForbidden"
	reasonOutOf     = "OutOf"
	labelMismatched = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
)

// Check decides.
func Check(in Input) plan.Admission {
	if reason, message := checkSysctls(in); reason != "" {
		return rejected(reason, message)
	}
	if message := checkOS(in.Pod); message != "" {
		return rejected(reasonOS, message)
	}
	if in.Node == nil && !in.Standalone && !in.Static {
		if in.NodeDeadline > 0 && in.Waited >= in.NodeDeadline {
			return rejected(reasonNode, fmt.Sprintf("this node's object could not be read from the apiserver for %s", in.Waited.Round(time.Second)))
		}
		return plan.Admission{Decision: plan.AdmissionPending, Reason: reasonNode,
			Message: "this node's object has not been read from the apiserver yet; the pod waits for it"}
	}
	if in.Node != nil {
		if reason, message := checkNode(in); reason != "" {
			return rejected(reason, message)
		}
	}
	if message := checkPorts(in); message != "" {
		return rejected(reasonPorts, message)
	}
	if reason, message := checkResources(in); reason != "" {
		return rejected(reason, message)
	}
	return plan.Admission{Decision: plan.Admitted}
}

func rejected(reason, message string) plan.Admission {
	return plan.Admission{Decision: plan.Rejected, Reason: reason, Message: message}
}

func checkOS(pod *v1.Pod) string {
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != runtime.GOOS {
		return fmt.Sprintf("Failed to admit pod as the OS field doesn't match node OS: pod wants %q, the node runs %q", pod.Spec.OS.Name, runtime.GOOS)
	}
	return ""
}

// checkNode compares the pod with the node's labels, name and taints.
func checkNode(in Input) (reason, message string) {
	if want, ok := in.Pod.Spec.NodeSelector[v1.LabelOSStable]; ok && want != runtime.GOOS {
		return reasonOSLabel, labelMismatched
	}
	if in.Pod.Spec.NodeName != "" && in.Pod.Spec.NodeName != in.Node.Name {
		return reasonNodeName, fmt.Sprintf("Predicate NodeName failed: the pod is bound to node %q, this is %q", in.Pod.Spec.NodeName, in.Node.Name)
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); err != nil || !ok {
		return reasonAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	}
	if in.Static {
		return "", ""
	}
	if taint, bad := corev1.FindMatchingUntoleratedTaint(logr.Discard(), in.Node.Spec.Taints, in.Pod.Spec.Tolerations, noExecute, true); bad {
		return reasonTaint, fmt.Sprintf("Predicate TaintToleration failed: node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
	}
	return "", ""
}

func noExecute(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }

// checkPorts looks for host ports that an active pod has.
func checkPorts(in Input) string {
	wanted := hostPorts(in.Pod)
	if len(wanted) == 0 {
		return ""
	}
	for _, pod := range in.Active {
		if pod.UID == in.Pod.UID {
			continue
		}
		for _, has := range hostPorts(pod) {
			for _, want := range wanted {
				if want.meets(has) {
					return fmt.Sprintf("Predicate NodePorts failed: host port %d/%s is taken by pod %s/%s", want.port, want.protocol, pod.Namespace, pod.Name)
				}
			}
		}
	}
	return ""
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

func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := hostPort{protocol: p.Protocol, ip: p.HostIP, port: p.HostPort}
			if h.protocol == "" {
				h.protocol = v1.ProtocolTCP
			}
			if h.ip == "" || h.ip == "::" {
				h.ip = anyIP
			}
			out = append(out, h)
		}
	}
	return out
}

// IsCritical says whether a pod belongs to the node's own working: static and
// mirror pods and those of a system-critical priority.
func IsCritical(pod *v1.Pod, static bool) bool {
	if static {
		return true
	}
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	if src := pod.Annotations[annotationSource]; src != "" && src != "api" {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

const (
	annotationSource = "kubernetes.io/config.source"
	// systemCritical is the lowest priority of a system-critical class.
	systemCritical = 2_000_000_000
)
