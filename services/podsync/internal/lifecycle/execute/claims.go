package execute

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// errNoDRA is why what a claim allocated is not prepared.
var errNoDRA = errors.New("this node has no dynamic resource allocation yet, and what they were allocated cannot be given to the pod")

// claims are the resource claims that a pod has been given, or is still to be given: its
// own, and the one that stands for extended resources. One of a template that needs no
// claim is none.
// Source: KEP-4381 and KEP-5004.
func claims(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		name := pod.Spec.ResourceClaims[i].Name
		made := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s v1.PodResourceClaimStatus) bool { return s.Name == name })
		if made < 0 || pod.Status.ResourceClaimStatuses[made].ResourceClaimName != nil {
			names = append(names, name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	return names
}

// unprepared says that a pod is not to run, for it was promised devices that nobody here
// asks a driver for yet: it would run without them, and nobody would know.
func unprepared(pod *v1.Pod) error {
	if names := claims(pod); len(names) > 0 {
		return fmt.Errorf("resource claims %s: %w", strings.Join(names, ", "), errNoDRA)
	}
	return nil
}

// lacksDevices says the same of a container of a pod whose sandbox another agent has made.
func lacksDevices(pod *v1.Pod, c *v1.Container) error {
	has := claims(pod)
	var names []string
	for i := range c.Resources.Claims {
		if name := c.Resources.Claims[i].Name; slices.Contains(has, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil &&
		slices.ContainsFunc(extended.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool { return m.ContainerName == c.Name }) {
		names = append(names, extended.ResourceClaimName)
	}
	if len(names) > 0 {
		return fmt.Errorf("resource claims %s: %w", strings.Join(names, ", "), errNoDRA)
	}
	return nil
}
