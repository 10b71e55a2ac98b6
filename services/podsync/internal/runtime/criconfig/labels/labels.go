// Package labels makes the labels and annotations by which a pod's sandboxes
// and containers are recognised in the runtime, by this agent and by any other
// that keeps Kubernetes' conventions.
//
// It is pure: it must never do I/O.
package labels

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// annotationPorts holds the container's ports in JSON.
const annotationPorts = "io.kubernetes.container.ports"

// A runtime lists all sandboxes, or all containers, in one message of 16 MiB at most,
// with all that is written on them. Nobody would learn anything of any container of
// the node any more if a few pods took that much. In bytes:
const (
	mostAnnotations = 32 << 10 // of a pod's own
	mostLabels      = 16 << 10 // of a pod's own
	mostAllocated   = 64 << 10 // a thousand containers
	mostPreStop     = 8 << 10
	mostPorts       = 2 << 10
	mostPath        = 1 << 10
)

// fitting leaves the largest out until the others fit.
func fitting(of map[string]string, most int) map[string]string {
	out, size := maps.Clone(of), 0
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range of {
		size += len(k) + len(v)
	}
	if size <= most {
		return out
	}
	for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b)+len(of[b]), len(a)+len(of[a])), cmp.Compare(a, b))
	}) {
		if size <= most {
			break
		}
		delete(out, k)
		size -= len(k) + len(of[k])
	}
	return out
}

// mostNamed is how many names a text names.
const mostNamed = 5

// LeftOut says what of a pod's own annotations and labels its sandbox does not have,
// for they are too long; empty when it has all.
func LeftOut(pod *v1.Pod) string {
	var parts []string
	for _, kind := range []struct {
		what string
		of   map[string]string
		most int
	}{{"annotations", pod.Annotations, mostAnnotations}, {"labels", pod.Labels, mostLabels}} {
		fit := fitting(kind.of, kind.most)
		var names []string
		for _, name := range slices.Sorted(maps.Keys(kind.of)) {
			if _, has := fit[name]; !has {
				names = append(names, fmt.Sprintf("%s (%d bytes)", name, len(name)+len(kind.of[name])))
			}
		}
		if more := len(names) - mostNamed; more > 0 {
			names = append(names[:mostNamed], fmt.Sprintf("and %d more", more))
		}
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("of %s, of which %d bytes fit: %s", kind.what, kind.most, strings.Join(names, ", ")))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "The pod's sandbox does not have all of its metadata, and so the network plugin and the runtime's own plugins do not see what is left out " + strings.Join(parts, "; ")
}

// PodLabels are a sandbox's labels: the pod's own, as far as they fit, and its name.
func PodLabels(pod *v1.Pod) map[string]string {
	labels := fitting(pod.Labels, mostLabels)
	labels[cri.LabelPodName] = pod.Name
	labels[cri.LabelPodNamespace] = pod.Namespace
	labels[cri.LabelPodUID] = string(pod.UID)
	return labels
}

// PodAnnotations are a sandbox's annotations: the pod's own, as far as they fit, and
// what it is allocated.
func PodAnnotations(pod *v1.Pod) (map[string]string, error) {
	annotations := fitting(pod.Annotations, mostAnnotations)
	// What this node writes down on a sandbox is not the user's to say.
	for _, own := range []string{cri.AnnotationAllocated, cri.AnnotationPodStarted, cri.AnnotationCgroupParent} {
		delete(annotations, own)
	}
	allocated, err := resize.Of(pod).Encode()
	if err != nil {
		return nil, fmt.Errorf("write down what pod %s/%s is allocated: %w", pod.Namespace, pod.Name, err)
	}
	if len(allocated) <= mostAllocated { // else its status says it, and a checkpoint while a resize waits
		annotations[cri.AnnotationAllocated] = allocated
	}
	return annotations, nil
}

// ContainerLabels are a container's labels.
func ContainerLabels(pod *v1.Pod, container string) map[string]string {
	return map[string]string{
		cri.LabelPodName: pod.Name, cri.LabelPodNamespace: pod.Namespace, cri.LabelPodUID: string(pod.UID),
		cri.LabelContainerName: container,
	}
}

// ContainerAnnotations are what an agent that finds the container later needs
// to know: how often it was restarted, how it ends, and how long it may take. What is
// too long of it is left out: the spec has it as long as the pod is known.
func ContainerAnnotations(pod *v1.Pod, c *v1.Container, restartCount int, backoff time.Duration) (map[string]string, error) {
	a := map[string]string{
		cri.AnnotationHash:                     podutil.Hash(c),
		cri.AnnotationRestartCount:             strconv.Itoa(restartCount),
		cri.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		cri.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if backoff > 0 {
		a[cri.AnnotationBackoff] = backoff.String()
		a[cri.AnnotationBackoffKey] = podutil.BackoffKey(c)
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[cri.AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[cri.AnnotationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("write the preStop hook of container %q down: %w", c.Name, err)
		}
		if len(raw) <= mostPreStop {
			a[cri.AnnotationPreStopHandler] = string(raw)
		}
	}
	if len(c.TerminationMessagePath) > mostPath {
		delete(a, cri.AnnotationTerminationMessagePath) // no such file can be mounted
	}
	raw, err := json.Marshal(resources.Effective(pod, c))
	if err != nil {
		return nil, fmt.Errorf("write the resources of container %q down: %w", c.Name, err)
	}
	a[cri.AnnotationResources] = string(raw)
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("write the ports of container %q down: %w", c.Name, err)
		}
		if len(raw) <= mostPorts {
			a[annotationPorts] = string(raw)
		}
	}
	return a, nil
}
