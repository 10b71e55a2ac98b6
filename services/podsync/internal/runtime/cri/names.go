package cri

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/types"
)

// The labels and annotations by which Kubernetes' agents recognise what they made.
const (
	LabelPodName       = types.KubernetesPodNameLabel
	LabelPodNamespace  = types.KubernetesPodNamespaceLabel
	LabelPodUID        = types.KubernetesPodUIDLabel
	LabelContainerName = types.KubernetesContainerNameLabel

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationGracePeriod              = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
)

// Our own annotations.
const (
	// AnnotationBackoff is how long the restart after this container's exit
	// waits, as a Go duration.
	AnnotationBackoff = "polylet.dev/restart-backoff"
	// AnnotationBackoffKey says what that was earned with; a change begins anew.
	AnnotationBackoffKey = "polylet.dev/restart-backoff-key"
	// AnnotationRound counts the restarts of all containers of the pod before
	// this container was made; absent for none.
	AnnotationRound = "polylet.dev/restart-all-round"
	// AnnotationCgroupParent, on a sandbox, is the pod's cgroup below the cgroup root.
	AnnotationCgroupParent = "polylet.dev/cgroup-parent"
	// AnnotationPodStarted, on a sandbox, is the pod's status.startTime, RFC 3339.
	AnnotationPodStarted = "polylet.dev/pod-started"
	// AnnotationAllocated, on a sandbox, is what its pod was allocated when it
	// was made, as resize.Allocation writes it.
	AnnotationAllocated = "polylet.dev/allocated"
	// AnnotationResources, on a container, are the cpu and memory that it was
	// made with, as JSON of a ResourceRequirements.
	AnnotationResources = "polylet.dev/resources"
)

// RestartCount reads a container's restart count from its annotations; false
// when there is none.
func RestartCount(annotations map[string]string) (int, bool) {
	n, err := strconv.Atoi(annotations[AnnotationRestartCount])
	return n, err == nil && n >= 0
}

// Backoff reads a container's back-off from its annotations; zero when there is none.
func Backoff(annotations map[string]string) time.Duration {
	d, err := time.ParseDuration(annotations[AnnotationBackoff])
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// Round reads a container's round from its annotations; zero when there is none.
func Round(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[AnnotationRound])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// PodStarted reads the pod's start time from a sandbox's annotations; zero when
// there is none.
func PodStarted(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339, annotations[AnnotationPodStarted])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Resources reads what a container was made with from its annotations; nil when
// they do not say.
func Resources(annotations map[string]string) *v1.ResourceRequirements {
	text := annotations[AnnotationResources]
	if text == "" {
		return nil
	}
	var r v1.ResourceRequirements
	if json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return &r
}

// GraceSeconds reads a container's grace period from its annotations: the
// deletion's, or else the pod's; zero when there is none.
func GraceSeconds(annotations map[string]string) int64 {
	for _, key := range []string{AnnotationDeletionGracePeriod, AnnotationGracePeriod} {
		if n, err := strconv.ParseInt(annotations[key], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return 0
}

// PreStop reads a container's preStop hook from its annotations; nil when there
// is none that can be read.
func PreStop(annotations map[string]string) *v1.LifecycleHandler {
	raw, ok := annotations[AnnotationPreStopHandler]
	if !ok {
		return nil
	}
	h := &v1.LifecycleHandler{}
	if json.Unmarshal([]byte(raw), h) != nil {
		return nil
	}
	return h
}

// Message is an error without the gRPC code that an answer of the runtime begins
// with.
func Message(err error) string {
	if answer, ok := status.FromError(err); ok {
		return answer.Message()
	}
	return err.Error()
}

// IsNameTaken tells that a call was refused because the name of the sandbox or
// container is held by another one, or by a call that is still under way; such
// a call of ours may have lost its answer. CRI has no code for it: containerd
// and CRI-O say so in words.
func IsNameTaken(err error) bool {
	if err == nil {
		return false
	}
	if status.Code(err) == codes.AlreadyExists {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "is reserved") || strings.Contains(text, "is already in use")
}
