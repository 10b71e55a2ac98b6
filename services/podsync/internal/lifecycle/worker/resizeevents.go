package worker

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
)

// resizeEvents records what the conditions of a pod's resize have come to.
func (w *worker) resizeEvents(old, now *v1.PodStatus) {
	events, pod := w.reg.deps.Events, w.state.Pod
	was, wasPending := conditionOf(old, v1.PodResizePending)
	is, isPending := conditionOf(now, v1.PodResizePending)
	undecided := wasPending && was.Message == plan.MessageOpen
	if isPending && is.Message != plan.MessageOpen && (!wasPending || undecided || was.Reason != is.Reason || was.ObservedGeneration != is.ObservedGeneration) {
		cause := is.Reason
		if pending := w.state.Resize.Pending; pending != nil && pending.Cause != "" {
			cause = pending.Cause
		}
		events.Pod(pod, v1.EventTypeWarning, "Resize"+is.Reason, "Pod resize "+cause+": "+summary(w.state.Desired, is.ObservedGeneration, is.Message))
	}
	was, wasOn := conditionOf(old, v1.PodResizeInProgress)
	is, isOn := conditionOf(now, v1.PodResizeInProgress)
	if isOn && (!wasOn || was.ObservedGeneration != is.ObservedGeneration) {
		events.Pod(pod, v1.EventTypeNormal, "ResizeStarted", "Pod resize started: "+summary(w.state.Resized(), is.ObservedGeneration, ""))
	}
	if isOn && is.Reason == v1.PodReasonError && (!wasOn || was.Reason != is.Reason || was.Message != is.Message) {
		events.Pod(pod, v1.EventTypeWarning, "ResizeError", "Pod resize error: "+summary(pod, is.ObservedGeneration, is.Message))
	}
	if wasOn && !isOn && !w.ended && now.Phase == v1.PodRunning {
		events.Pod(pod, v1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: "+summary(pod, was.ObservedGeneration, ""))
	}
}

// detail is a resize as events tell of it.
type detail struct {
	Pod            *v1.ResourceRequirements `json:"podResources,omitempty"`
	InitContainers []containerDetail        `json:"initContainers,omitempty"`
	Containers     []containerDetail        `json:"containers,omitempty"`
	Generation     int64                    `json:"generation,omitempty"`
	Error          string                   `json:"error,omitempty"`
}

type containerDetail struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// summary is a pod's resources in JSON.
func summary(pod *v1.Pod, generation int64, err string) string {
	d := detail{Pod: pod.Spec.Resources, Generation: generation, Error: err}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		d.InitContainers = append(d.InitContainers, containerDetail{c.Name, c.Resources})
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		d.Containers = append(d.Containers, containerDetail{c.Name, c.Resources})
	}
	raw, _ := json.Marshal(d) // strings and quantities always marshal
	return string(raw)
}
