package podutil

import v1 "k8s.io/api/core/v1"

// QOS is the pod's quality-of-service class, as the apiserver has it or computed.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return ComputeQOS(pod)
}

// ComputeQOS computes the class from cpu and memory of the pod's own resources
// when they are set, else of its containers.
// Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func ComputeQOS(pod *v1.Pod) v1.PodQOSClass {
	asked, guaranteed := false, true
	count := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			asked = asked || request.Sign() > 0 || limit.Sign() > 0
			guaranteed = guaranteed && limit.Sign() > 0 && (request.Sign() <= 0 || request.Cmp(limit) == 0)
		}
	}
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		count(r)
	} else {
		for kind, c := range Containers(pod) {
			if kind != Ephemeral {
				count(&c.Resources)
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
