// Package downward computes what a pod may learn about itself: the values of
// fieldRef and resourceFieldRef, for environments and for volumes.
//
// It is pure: it must never do I/O.
package downward

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Node is what of the node and the sandbox a pod may learn.
type Node struct {
	Name string
	// HostIPs and PodIPs, primary first; empty when not known yet.
	HostIPs, PodIPs []string
	// Allocatable stands in for limits that are not set.
	Allocatable v1.ResourceList
}

// Field is the value of a fieldRef's path. An unknown path is an error, and so is the
// node's address before it is known; a pod's is empty then.
func Field(pod *v1.Pod, path string, node Node) (string, error) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	if strings.HasPrefix(path, "status.hostIP") && len(node.HostIPs) == 0 {
		// The container would have none for all of its life.
		return "", fmt.Errorf("%s is not known yet: the node has no address so far", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return FormatMap(pod.Labels), nil
	case "metadata.annotations":
		return FormatMap(pod.Annotations), nil
	case "spec.nodeName", "spec.host": // its name of old, which the API still takes
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName, nil
		}
		return node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(node.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(node.HostIPs, ","), nil
	case "status.podIP":
		return first(node.PodIPs), nil
	case "status.podIPs":
		return strings.Join(node.PodIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// subscript reads the key of base['key'].
func subscript(path, base string) (string, bool) {
	rest, ok := strings.CutPrefix(path, base+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// FormatMap is a map as downward API files show it: sorted lines of key="value".
func FormatMap(m map[string]string) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	lines := make([]string, len(keys))
	for i, k := range keys {
		lines[i] = k + "=" + strconv.Quote(m[k])
	}
	return strings.Join(lines, "\n")
}

// Resource is the value of a resourceFieldRef. own is the container whose
// environment it is for, used when the reference names none; nil in volumes.
func Resource(pod *v1.Pod, own *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	container := own
	if ref.ContainerName != "" {
		container = lasting(pod, ref.ContainerName)
	}
	if container == nil {
		return "", fmt.Errorf("resourceFieldRef %s: the pod has no container %q", ref.Resource, ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := v1.ResourceName(name)
	switch resourceName {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
	default:
		if !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
			return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
		}
	}
	var q resource.Quantity
	switch kind {
	case "limits":
		q = limit(pod, container, resourceName, allocatable)
	case "requests":
		q = container.Resources.Requests[resourceName]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	return divide(q, ref.Divisor, resourceName == v1.ResourceCPU), nil
}

// limit is the container's limit, else the pod's own, else what the node has.
func limit(pod *v1.Pod, c *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
		return resource.Quantity{}
	}
	return allocatable[name]
}

// divide rounds up; CPU divides in thousandths.
func divide(q, divisor resource.Quantity, milli bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := q.Value(), divisor.Value()
	if milli {
		value, by = q.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(by))), 10)
}

// lasting is the init or regular container of that name; nil when there is none.
func lasting(pod *v1.Pod, name string) *v1.Container {
	c, kind := podutil.Container(pod, name)
	if kind == podutil.Ephemeral {
		return nil
	}
	return c
}
