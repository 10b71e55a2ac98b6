// Package podutil answers questions about one v1.Pod that need nothing but the
// pod: whether it is static, its quality of service, a container by its name.
//
// It owns these answers, so that there is one of each; it must never hold state,
// do I/O, or know anything of the node, the runtime or the apiserver beside the
// API's types.
package podutil

import (
	v1 "k8s.io/api/core/v1"
)

// The annotations that a node writes into the pods it has; kubectl and log
// collectors read them. AnnotationMirror holds the AnnotationHash of the static
// pod that a mirror stands for.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationSeen   = "kubernetes.io/config.seen"
	AnnotationMirror = v1.MirrorPodAnnotationKey
)

// SourceAPI is the AnnotationSource of the apiserver's pods; every other one is of
// static pods.
const SourceAPI = "api"

// CriticalPriority is where the priorities of the system's classes begin.
const CriticalPriority = 2_000_000_000

// Static says whether the pod comes from a file or URL. Its mirror does not.
func Static(pod *v1.Pod) bool { return foreign(pod) && !Mirror(pod) }

// Mirror says whether the pod is the apiserver's image of a static pod.
func Mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}

// Critical says whether the cluster cannot do without the pod: a static one, a
// mirror, or one of a system priority.
func Critical(pod *v1.Pod) bool {
	return foreign(pod) || Mirror(pod) || OfCriticalPriority(pod)
}

// OfCriticalPriority says whether the pod's priority alone makes it critical.
func OfCriticalPriority(pod *v1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= CriticalPriority
}

func foreign(pod *v1.Pod) bool {
	source := pod.Annotations[AnnotationSource]
	return source != "" && source != SourceAPI
}

// TerminalPhase says whether a pod in this phase stays in it for ever.
func TerminalPhase(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

// Condition is the pod's condition of a type, in the list itself; nil when it has
// none.
func Condition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// ConditionsByType is Condition for all of a list.
func ConditionsByType(list []v1.PodCondition) Index[v1.PodConditionType, v1.PodCondition] {
	return NewIndex(list, func(c *v1.PodCondition) v1.PodConditionType { return c.Type })
}
