// Package equal compares statuses of pods, which is done at each step of
// each pod: field by field, and by reflection only what is seldom there. It must
// never leave a field out; its test fails when the API gets a new one.
package equal

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Equal is equality.Semantic.DeepEqual: times are equal as instants, quantities
// as numbers, and an empty list is none.
func Equal(a, b v1.PodStatus) bool {
	if a.Phase != b.Phase || a.Reason != b.Reason || a.Message != b.Message || a.ObservedGeneration != b.ObservedGeneration ||
		a.HostIP != b.HostIP || a.PodIP != b.PodIP || !slices.Equal(a.HostIPs, b.HostIPs) || !slices.Equal(a.PodIPs, b.PodIPs) ||
		!a.StartTime.Equal(b.StartTime) || !slices.EqualFunc(a.Conditions, b.Conditions, equalConditions) ||
		!slices.EqualFunc(a.ContainerStatuses, b.ContainerStatuses, equalContainers) ||
		!slices.EqualFunc(a.InitContainerStatuses, b.InitContainerStatuses, equalContainers) {
		return false
	}
	return a.NominatedNodeName == b.NominatedNodeName && a.QOSClass == b.QOSClass && a.Resize == b.Resize &&
		slices.EqualFunc(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses, equalContainers) &&
		equalRest(len(a.ResourceClaimStatuses)+len(b.ResourceClaimStatuses) == 0, a.ResourceClaimStatuses, b.ResourceClaimStatuses) &&
		equalRest(a.ExtendedResourceClaimStatus == b.ExtendedResourceClaimStatus, a.ExtendedResourceClaimStatus, b.ExtendedResourceClaimStatus) &&
		equalAmounts(a.AllocatedResources, b.AllocatedResources) &&
		equalResources(a.Resources, b.Resources) &&
		equalRest(len(a.NodeAllocatableResourceClaimStatuses)+len(b.NodeAllocatableResourceClaimStatuses) == 0,
			a.NodeAllocatableResourceClaimStatuses, b.NodeAllocatableResourceClaimStatuses)
}

// equalRest compares what is seldom there; known says that it is equal.
func equalRest[T any](known bool, a, b T) bool {
	return known || equality.Semantic.DeepEqual(a, b)
}

// equalResources are of each container that asks for any.
func equalResources(a, b *v1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalAmounts(a.Requests, b.Requests) && equalAmounts(a.Limits, b.Limits) && slices.Equal(a.Claims, b.Claims)
}

func equalAmounts(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(p, q resource.Quantity) bool { return p.Cmp(q) == 0 })
}

func equalPointers[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func equalConditions(a, b v1.PodCondition) bool {
	if !a.LastProbeTime.Equal(&b.LastProbeTime) || !a.LastTransitionTime.Equal(&b.LastTransitionTime) {
		return false
	}
	a.LastProbeTime, a.LastTransitionTime = metav1.Time{}, metav1.Time{}
	b.LastProbeTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}

func equalContainers(a, b v1.ContainerStatus) bool {
	if a.Name != b.Name || a.Ready != b.Ready || a.RestartCount != b.RestartCount || a.ContainerID != b.ContainerID ||
		!equalStates(a.State, b.State) || !equalStates(a.LastTerminationState, b.LastTerminationState) {
		return false
	}
	return a.Image == b.Image && a.ImageID == b.ImageID && equalPointers(a.Started, b.Started) && equalPointers(a.StopSignal, b.StopSignal) &&
		equalAmounts(a.AllocatedResources, b.AllocatedResources) &&
		equalResources(a.Resources, b.Resources) &&
		slices.EqualFunc(a.VolumeMounts, b.VolumeMounts, equalMounts) &&
		equalRest(a.User == b.User, a.User, b.User) &&
		equalRest(len(a.AllocatedResourcesStatus)+len(b.AllocatedResourcesStatus) == 0, a.AllocatedResourcesStatus, b.AllocatedResourcesStatus)
}

func equalMounts(a, b v1.VolumeMountStatus) bool {
	return a.Name == b.Name && a.MountPath == b.MountPath && a.ReadOnly == b.ReadOnly && equalPointers(a.RecursiveReadOnly, b.RecursiveReadOnly) &&
		equalRest(a.VolumeStatus == b.VolumeStatus, a.VolumeStatus, b.VolumeStatus)
}

func equalStates(a, b v1.ContainerState) bool {
	if a.Waiting == nil || b.Waiting == nil {
		if a.Waiting != b.Waiting {
			return false
		}
	} else if *a.Waiting != *b.Waiting {
		return false
	}
	if a.Running == nil || b.Running == nil {
		if a.Running != b.Running {
			return false
		}
	} else if !a.Running.StartedAt.Equal(&b.Running.StartedAt) {
		return false
	}
	if a.Terminated == nil || b.Terminated == nil {
		return a.Terminated == b.Terminated
	}
	return equalEnds(*a.Terminated, *b.Terminated)
}

func equalEnds(a, b v1.ContainerStateTerminated) bool {
	if !a.StartedAt.Equal(&b.StartedAt) || !a.FinishedAt.Equal(&b.FinishedAt) {
		return false
	}
	a.StartedAt, a.FinishedAt = metav1.Time{}, metav1.Time{}
	b.StartedAt, b.FinishedAt = metav1.Time{}, metav1.Time{}
	return a == b
}
