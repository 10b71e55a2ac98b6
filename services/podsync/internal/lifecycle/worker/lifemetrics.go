package worker

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// lifeMetrics count a pod's way beside its start: the worker's rounds, ends of
// containers, pods that come back.
type lifeMetrics struct {
	startTotal, workerStart, containersPerPod prometheus.Histogram
	round                                     *prometheus.HistogramVec
	terminated, restarted                     *prometheus.CounterVec
	userns, usernsErrors                      prometheus.Counter
}

func newLifeMetrics(reg prometheus.Registerer, startBuckets []float64) lifeMetrics {
	m := lifeMetrics{
		startTotal: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_total_duration_seconds", Buckets: startBuckets,
			Help: "Duration in seconds to start a pod since creation, including time to pull images and run init containers, until all its containers are reported as started.",
		}),
		workerStart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "Duration in seconds from kubelet seeing a pod to starting a worker.",
		}),
		containersPerPod: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Help: "The number of containers per pod.", Buckets: []float64{1, 2, 4, 8, 16},
		}),
		round: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "Duration in seconds to sync a single pod: one round of its worker, without the actions that it starts.",
		}, []string{"operation_type"}),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total", Help: "Cumulative number of terminated containers.",
		}, []string{"container_type", "exit_code", "reason"}),
		restarted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_restarted_pods_total", Help: "Number of pods that have been restarted because they were deleted and recreated with the same UID.",
		}, []string{"static"}),
		userns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_user_namespaced_pods_total", Help: "Cumulative number of pods with user namespaces started.",
		}),
		usernsErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_user_namespaced_pods_errors_total", Help: "Cumulative number of errors when starting pods with user namespaces.",
		}),
	}
	reg.MustRegister(m.startTotal, m.workerStart, m.containersPerPod, m.round, m.terminated, m.restarted, m.userns, m.usernsErrors)
	return m
}

// workerStarted counts a worker that begins to work on a pod seen a while ago.
func (m *Metrics) workerStarted(seen time.Time) {
	if m != nil {
		m.life.workerStart.Observe(time.Since(seen).Seconds())
	}
}

// roundOf names a round of a worker: its first one, one that ends the pod, or
// any other.
func (w *worker) roundOf() string {
	switch {
	case !w.started:
		return "create"
	case !w.state.EndSince.IsZero() || w.state.Pod == nil:
		return "kill"
	default:
		return "sync"
	}
}

func (m *Metrics) rounded(operation string, began time.Time) {
	if m != nil {
		m.life.round.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	}
}

// userNamespace counts the start of a sandbox with a user namespace of its own.
func (m *Metrics) userNamespace(pod *v1.Pod, err error) {
	switch {
	case pod.Spec.HostUsers == nil || *pod.Spec.HostUsers:
	case err != nil:
		m.life.usernsErrors.Inc()
		fallthrough
	default:
		m.life.userns.Inc()
	}
}

// restarted counts a pod that comes back under the UID of one that has ended.
func (m *Metrics) restarted(static bool) {
	if m == nil {
		return
	}
	label := ""
	if static {
		label = "true"
	}
	m.life.restarted.WithLabelValues(label).Inc()
}

// ended counts the containers that the newer status shows as ended and the older does not.
func (m *Metrics) ended(older, newer *v1.PodStatus) {
	if m == nil {
		return
	}
	for _, lists := range []struct {
		kind         string
		older, newer []v1.ContainerStatus
	}{
		{"init_container", older.InitContainerStatuses, newer.InitContainerStatuses},
		{"container", older.ContainerStatuses, newer.ContainerStatuses},
		{"ephemeral_container", older.EphemeralContainerStatuses, newer.EphemeralContainerStatuses},
	} {
		were := podutil.ByName(lists.older)
		for i := range lists.newer {
			was := were.Find(lists.newer[i].Name)
			for _, end := range ends(&lists.newer[i]) {
				if !hasEnd(was, end.ContainerID) {
					m.life.terminated.WithLabelValues(lists.kind, exitCode(end.ExitCode), endReason(end.Reason)).Inc()
				}
			}
		}
	}
}

func ends(st *v1.ContainerStatus) (out []*v1.ContainerStateTerminated) {
	for _, end := range []*v1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
		if end != nil && end.ContainerID != "" {
			out = append(out, end)
		}
	}
	return out
}

func hasEnd(st *v1.ContainerStatus, id string) bool {
	if st == nil {
		return false
	}
	for _, end := range ends(st) {
		if end.ContainerID == id {
			return true
		}
	}
	return false
}

// exitCode is a label: what a container can exit with is a byte, all else is
// the runtime's invention.
func exitCode(code int32) string {
	if code < 0 || code > 255 {
		return "other"
	}
	return strconv.Itoa(int(code))
}

// endReason is a label: the reasons are the runtime's words, of which only the
// usual ones get a series.
func endReason(reason string) string {
	switch reason {
	case "Completed", "Error", "OOMKilled", "ContainerCannotRun", "StartError", "DeadlineExceeded", "ContainerStatusUnknown", "Evicted":
		return reason
	case "":
		return ""
	}
	return "other"
}
