package worker

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/status/equal"
)

// publish tells everybody what the plan says of the pod.
func (w *worker) publish(out plan.Output) {
	w.waits(out.Waits)
	w.evicted(&w.state.Reported, &out.Status) // before those hear of its end that wait for its room
	if out.Stopped != w.ended || out.Freed != w.freed {
		w.ended, w.freed = out.Stopped, out.Freed
		w.reg.note(w.uid, out.Stopped, out.Freed)
	}
	if w.state.Pod == nil {
		return
	}
	if out.Overdue && !w.overdue {
		w.overdue = true
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, "ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period.")
	}
	old := w.state.Reported
	w.state.Reported = out.Status
	changed := !equal.Equal(old, out.Status)
	if w.state.Observed.Known && w.state.Admission.Decision != podstate.AdmissionPending || out.Terminating {
		if changed {
			w.noteStatus(&old, &out.Status)
			w.transitions(&old, &out.Status)
			if w.state.Static {
				w.reg.deps.Conditions.Set(w.uid, out.Status.Conditions)
			}
		}
		if (changed || w.published != w.state.Pod) && (out.Terminating || !w.keepsFirst()) {
			w.published = w.state.Pod
			w.reg.deps.Status.Set(w.state.Pod, out.Status)
		}
	}
	if !slices.Equal(w.targets, out.Targets) {
		w.targets = out.Targets
		w.reg.deps.Probes.Set(w.state.Pod, out.Targets)
	}
	if changed || w.shown != w.state.Pod {
		w.shown = w.state.Pod
		w.reg.deps.Pods.Set(podcache.Pod{Pod: w.state.Desired, Status: out.Status, Static: w.state.Static})
	}
}

// keepsFirst says whether nobody is to be told of the pod's admission yet. Of one that
// ends nobody asks any more, and its object goes once its end was told.
func (w *worker) keepsFirst() bool {
	return w.published == nil && w.state.KeepsFirst()
}

// waits tells what the pod waits for.
func (w *worker) waits(now []podstate.Wait) {
	network := func(wait podstate.Wait) bool { return wait.Kind == "network" }
	before := w.state.Waits
	w.state.Waits = now
	if at := slices.IndexFunc(now, network); at >= 0 && !slices.ContainsFunc(before, network) && w.state.Pod != nil {
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, "NetworkNotReady", now[at].Reason)
	}
	if !slices.Equal(before, now) {
		w.inbox.show(now)
	}
}

// transitions logs and records what people want to know of a change of status.
func (w *worker) transitions(old, now *v1.PodStatus) {
	if old.Phase != now.Phase {
		w.log.Info("Phase changed", "from", old.Phase, "to", now.Phase, "reason", now.Reason)
	}
	w.reg.deps.Metrics.ended(old, now)
	if old.Phase != now.Phase && now.Phase == v1.PodRunning && !w.state.Begun && !w.first.told {
		w.first.told = true
		w.reg.deps.Metrics.began(w.state.Pod, w.first.seen, w.state.Now, w.first.pulling)
	}
	w.resizeEvents(old, now)
	w.otherFamily(old.HostIP, now.HostIP)
	if now.Reason == "DeadlineExceeded" && old.Reason != now.Reason {
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeNormal, now.Reason, now.Message)
	}
	for _, st := range beginWaiting(old, now) {
		w.backOff(st)
	}
}

// beginWaiting are the containers that wait for something else than before, or after
// another end; debug containers start once.
func beginWaiting(old, now *v1.PodStatus) (begin []*v1.ContainerStatus) {
	for _, lists := range [][2][]v1.ContainerStatus{
		{old.InitContainerStatuses, now.InitContainerStatuses},
		{old.ContainerStatuses, now.ContainerStatuses},
	} {
		were := podutil.ByName(lists[0])
		for i := range lists[1] {
			st := &lists[1][i]
			before := were.Find(st.Name)
			if reason := waiting(st); reason != "" && (reason != waiting(before) || lastOf(st) != lastOf(before)) {
				begin = append(begin, st)
			}
		}
	}
	return begin
}

// otherFamily tells of an address of the node that is of another family than the
// one before it: services and peers of the pod may know it by that one.
func (w *worker) otherFamily(old, now string) {
	was, is := family(old), family(now)
	if was == "" || is == "" || was == is {
		return
	}
	w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, "HostIPsIPFamilyMismatch", fmt.Sprintf(
		"The pod's status has the %s address %s of this node, whose addresses begin with the %s address %s now; pass an explicit `--node-ip` to fix this.",
		was, old, is, now))
}

// family is that of an address, empty of anything else.
func family(ip string) string {
	addr, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return ""
	case addr.Unmap().Is4():
		return "IPv4"
	}
	return "IPv6"
}

// backOff records the events of a container that waits after failures.
func (w *worker) backOff(st *v1.ContainerStatus) {
	pod, events := w.state.Pod, w.reg.deps.Events
	switch reason := waiting(st); reason {
	case "CrashLoopBackOff":
		events.Container(pod, st.Name, v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", st.Name, pod.Name, pod.Namespace, pod.UID))
	case "ImagePullBackOff":
		events.Container(pod, st.Name, v1.EventTypeNormal, "BackOff", backOffPulling(st))
		events.Container(pod, st.Name, v1.EventTypeWarning, "Failed", "Error: "+reason)
	}
}

// backOffPulling is the event's text; the status names the image, which may be
// that of an image volume, in front of the error.
func backOffPulling(st *v1.ContainerStatus) string {
	const begin = "Back-off pulling image "
	if quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(st.State.Waiting.Message, begin)); err == nil {
		return begin + quoted
	}
	return fmt.Sprintf(begin+"%q", st.Image)
}

// lastOf is the container that a status says has ended last. One that ends at once
// may never be seen to run.
func lastOf(st *v1.ContainerStatus) string {
	if st == nil || st.LastTerminationState.Terminated == nil {
		return ""
	}
	return st.LastTerminationState.Terminated.ContainerID
}

func waiting(st *v1.ContainerStatus) string {
	if st == nil || st.State.Waiting == nil {
		return ""
	}
	return st.State.Waiting.Reason
}
