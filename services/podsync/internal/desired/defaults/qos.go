package defaults

import (
	v1 "k8s.io/api/core/v1"
)

// QOSClass computes the quality-of-service class from cpu and memory of the
// pod's own resources when they are set, else of its containers.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	var sets []v1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		sets = append(sets, *r)
	} else {
		for _, c := range pod.Spec.InitContainers {
			sets = append(sets, c.Resources)
		}
		for _, c := range pod.Spec.Containers {
			sets = append(sets, c.Resources)
		}
	}
	guaranteed, asked := len(sets) > 0, false
	for _, r := range sets {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Sign() > 0 || limit.Sign() > 0 {
				asked = true
			}
			if limit.Sign() <= 0 || request.Sign() > 0 && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !asked:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}
