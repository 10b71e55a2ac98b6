package execute

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/resourcename"
)

// errNoDRA is why what a claim allocated is not prepared.
var errNoDRA = errors.New("this node has no dynamic resource allocation yet, and what they were allocated cannot be given to the pod")

// errNoPlugins is why a device plugin is not asked for devices.
var errNoPlugins = errors.New("they were a device plugin's while a kubelet had this node, which has no device plugins yet: the container would run without them; if they are now only counted, remove what the kubelet has left, device-plugins/kubelet_internal_checkpoint")

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

// lacksDevices says the same of a container: of a pod whose sandbox another agent has
// made, and of one that asks for an extended resource that is a device plugin's. One that
// somebody has written into the Node, and no plugin has, is counted and nothing more, and
// who asks for 0 of any needs nothing.
func (e *Executor) lacksDevices(pod *v1.Pod, c *v1.Container) error {
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
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		if many := c.Resources.Limits[name]; e.deps.PluginHas == nil || !resourcename.Extended(name) || many.IsZero() {
			continue
		}
		switch plugins, err := e.deps.PluginHas(name); {
		case err != nil:
			return err
		case plugins:
			return fmt.Errorf("devices of %s: %w", name, errNoPlugins)
		}
	}
	return nil
}
