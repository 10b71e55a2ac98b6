// Package evictions keeps which pods the node has evicted because it was short of
// something, by their controllers, and says for how long the next pod of such a
// controller waits: whoever makes a pod anew each time that it is evicted would else
// keep the node at its edge.
//
// It owns what counts as such an eviction and the back-off. It must never do I/O, read a
// clock or end a pod.
package evictions

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const (
	// reasonEvicted is the reason of a pod's status.
	reasonEvicted = "Evicted"
	// lowOn is how the message of an eviction begins that is no limit of the pod's own.
	lowOn = "The node was low on resource: "
	// longestUID and longestName bound what is kept of a controller, in bytes: who makes
	// pods writes what he likes into their owner references.
	longestUID  = 128
	longestName = 320
)

// Short are the conditions that say what the node is short of, each with the time since
// which the Node says so, zero while only somebody else does; nil while that is not known.
type Short map[v1.NodeConditionType]time.Time

// Controller is whose pods are counted together: those of one namespace, for the UID of
// a controller of another is easily claimed.
type Controller struct {
	Namespace string
	UID       types.UID
}

// Eviction is one of a pod that has a controller.
type Eviction struct {
	Pod types.UID
	// Controller is the pod's, and Name what people call it.
	Controller Controller
	Name       string
	// Resource is what the node was short of, and Condition what its condition is then.
	Resource  string
	Condition v1.NodeConditionType
	// End is when the last of the pod's containers had ended and it was evicted.
	End time.Time
	// Witnessed: the pod ended in this run of the process, so that the shortage is the
	// one of now or was seen to end.
	Witnessed bool
}

// Of is the eviction that a pod's status tells of.
func Of(pod *v1.Pod, st *v1.PodStatus) (Eviction, bool) {
	if st.Phase != v1.PodFailed || st.Reason != reasonEvicted || !Concerns(pod) {
		return Eviction{}, false
	}
	c := podutil.Condition(st.Conditions, v1.DisruptionTarget)
	rest, short := strings.CutPrefix(st.Message, lowOn)
	if !short || c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonTerminationByKubelet {
		return Eviction{}, false
	}
	resource, _, _ := strings.Cut(rest, ". ")
	e := Eviction{Pod: pod.UID, Controller: controllerOf(pod), Name: called(metav1.GetControllerOf(pod)), Resource: resource, End: endOf(st, c)}
	switch resource {
	case string(v1.ResourceMemory):
		e.Condition = v1.NodeMemoryPressure
	case "pids":
		e.Condition = v1.NodePIDPressure
	case string(v1.ResourceEphemeralStorage), "inodes":
		e.Condition = v1.NodeDiskPressure
	default:
		return Eviction{}, false
	}
	return e, true
}

// endOf is when the last of a pod's containers had ended and its condition was set.
func endOf(st *v1.PodStatus, c *v1.PodCondition) time.Time {
	last := c.LastTransitionTime.Time // Its containers may have ended before, as those of a machine that went down.
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	return last
}

// Concerns says whether a pod may have to wait at all: one of a controller, that the
// cluster can do without.
func Concerns(pod *v1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return !podutil.Critical(pod) && owner != nil && len(owner.UID) <= longestUID
}

// controllerOf is the controller of a pod that this concerns.
func controllerOf(pod *v1.Pod) Controller {
	return Controller{pod.Namespace, metav1.GetControllerOf(pod).UID}
}

// called is what people call an owner, on one line.
func called(owner *metav1.OwnerReference) string {
	var out strings.Builder
	for _, r := range owner.Kind + " " + owner.Name {
		if out.Len()+utf8.RuneLen(r) > longestName {
			break
		}
		if unicode.IsPrint(r) {
			out.WriteRune(r)
		}
	}
	return out.String()
}
