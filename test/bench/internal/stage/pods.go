package stage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
)

const (
	// podWithin bounds every wait for pods.
	podWithin = 3 * time.Minute
)

// Each does the same for every name at once and returns when each was begun.
func Each(names []string, do func(string) error) (map[string]time.Time, error) {
	began := map[string]time.Time{}
	failed := make(chan error, len(names))
	for _, name := range names {
		began[name] = time.Now()
		go func() { failed <- do(name) }()
	}
	var first error
	for range names {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return began, first
}

// BurstNames are the names of the pods of a burst.
func BurstNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("burst-%d", i)
	}
	return names
}

// Pod ends at once on SIGTERM and has no probe, so that only the way to
// running and back is timed.
func Pod(name string) *corev1.Pod {
	grace, no := int64(5), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: NodeName, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			Containers:  []corev1.Container{{Name: "app", Image: images.TestApp, Args: []string{"sleep"}, ImagePullPolicy: corev1.PullIfNotPresent}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// IsReady says whether the pod's condition Ready is True.
func IsReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Sleep waits, or returns why it could not.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
