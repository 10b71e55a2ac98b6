// Package admission owns the decision whether a pod may run on this node, and which
// pods have to make room for a critical one: pure functions over the pod, the
// node and the pods that run already. It must never do I/O, read a clock or
// keep state.
package admission

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
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
	// Said is what the node is said to be short of, before the Node says it, and Now the
	// time by which that counts.
	Said Pressure
	Now  time.Time
	// Resize is true for a pod that runs and is to have more or less than it
	// has: no other has to go for that.
	Resize bool
	// NodeOutdated is true when Node may be older than the pod's binding: what
	// it forbids is asked again with a fresh one before the pod is rejected.
	NodeOutdated bool
	// Waited is how long the pod has waited for an answer.
	Waited time.Duration
	// Deadline is how long it may wait for what can still come (the Node object,
	// a device plugin); forever when zero.
	Deadline time.Duration
	// Allocatable is the node's own account of what pods may use. When nil,
	// Node.Status.Allocatable is taken. A resource that is not named in it has
	// no bound.
	Allocatable v1.ResourceList
	// Active are the admitted pods that have not ended, with what they are
	// allocated; Pod may be among them and is not counted.
	Active []*v1.Pod
	// Leaving are those of Active that are being stopped, and for how long they
	// are: what they use comes free without anybody's doing, in time.
	Leaving map[types.UID]time.Duration
	// Gone are those of Active whose object is gone though they have not ended,
	// for they were deleted by force: whoever put Pod here did not reckon with them.
	Gone map[types.UID]bool
	// GoneDevices are the resources of device plugins that nobody serves.
	GoneDevices []v1.ResourceName
	// Host is what of the machine and its runtime matters.
	Host Host
}

// Host is what the machine, the runtime and the configuration can do.
type Host struct {
	// AllowedUnsafeSysctls are patterns such as "net.core.*".
	AllowedUnsafeSysctls []string
	// NoAppArmor is true when the kernel does not enforce AppArmor.
	NoAppArmor bool
	// NoSupplementalGroupsPolicy is true when the runtime cannot keep groups of
	// the image from a process.
	NoSupplementalGroupsPolicy bool
	// NoPodLevelResources is true when the gate PodLevelResources is off.
	NoPodLevelResources bool
	// DeclaredFeatures are what this node says that it can do; nil when the
	// gate NodeDeclaredFeatures is off.
	DeclaredFeatures []string
	// Release is the Kubernetes release that this node stands for, e.g. v1.36.3.
	Release string
	// ShuttingDown is true from the moment that the machine goes down.
	ShuttingDown bool
}

// Answer is the decision.
type Answer struct {
	podstate.Admission
	// Preempt are pods that must be stopped before Pod can be admitted, in this
	// order; the decision is pending then.
	Preempt []Victim
}

// The reasons of a rejection, as in the status of a pod that a kubelet rejects.
const (
	reasonNode       = "InvalidNodeInfo"
	reasonEvicted    = "Evicted"
	reasonSysctl     = "SysctlForbidden"
	reasonUnexpected = "UnexpectedAdmissionError"
	reasonOS         = "PodOSNotSupported"
	reasonOSLabel    = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonGroups     = "SupplementalGroupsPolicyNotSupported"
	reasonNodeName   = "NodeName"
	reasonAffinity   = "NodeAffinity"
	reasonTaint      = "TaintToleration"
	reasonPorts      = "NodePorts"
	reasonOutOf      = "OutOf"
	reasonAppArmor   = "AppArmor"
	reasonPodLevel   = "PodLevelResourcesNotSupported"
	reasonFeature    = "PodFeatureUnsupported"
	reasonShutdown   = "NodeShutdown"
)

// Check decides: the first rule that has something to say against the pod is
// the answer.
func Check(in Input) Answer {
	for _, rule := range []func(Input) (Answer, bool){
		checkPressure, checkSysctls, checkDevices, checkPredicates, checkAppArmor, checkPodLevel, checkFeatures, checkShutdown,
	} {
		if answer, objects := rule(in); objects {
			return answer
		}
	}
	return Answer{Admission: podstate.Admission{Decision: podstate.Admitted}}
}

// fine is what a rule returns that has nothing against the pod.
func fine() (Answer, bool) { return Answer{}, false }

func rejected(reason, format string, args ...any) (Answer, bool) {
	return Answer{Admission: podstate.Admission{Decision: podstate.Rejected, Reason: reason, Message: fmt.Sprintf(format, args...)}}, true
}

// notYet lets the pod wait for what can still come.
func notYet(reason, format string, args ...any) (Answer, bool) {
	return Answer{Admission: podstate.Admission{Decision: podstate.AdmissionPending, Reason: reason, Message: fmt.Sprintf(format, args...)}}, true
}

// late says whether the pod has waited for as long as it may.
func (in *Input) late() bool { return in.Deadline > 0 && in.Waited >= in.Deadline }
