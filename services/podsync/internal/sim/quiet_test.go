package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// wrong says what is not as it was asked for; empty when everything is.
func (w *world) wrong() string {
	snapshot := w.rt.Snapshot()
	owners := map[string]*v1.Pod{} // by UID, as the apiserver or the mirror shows it
	pods := map[*subject]*v1.Pod{}
	for _, sub := range w.scenario.subjects {
		f := w.judge.factsOf(sub)
		if f == nil {
			continue // never created
		}
		name := sub.pod.Name
		if sub.static {
			name += "-" + nodeName
		}
		pod := w.api.Pod(namespace, name)
		switch {
		case !f.unwanted.IsZero():
			if pod != nil {
				return fmt.Sprintf("pod %s is still there: %s", name, inShort(pod))
			}
			continue
		case pod == nil:
			return fmt.Sprintf("pod %s is not there", name)
		}
		if why := w.missed(sub, pod, f); why != "" {
			return fmt.Sprintf("pod %s (%s) %s: %s", name, sub.shape, why, inShort(pod))
		}
		if why := w.untrue(sub, pod, snapshot); why != "" {
			return fmt.Sprintf("the status of pod %s (%s) is not true: %s: %s", name, sub.shape, why, inShort(pod))
		}
		owners[uidOf(pod)], pods[sub] = pod, pod
	}
	if why := w.wrongSizes(pods, snapshot); why != "" {
		return why
	}
	if why := strayRuntime(snapshot, owners); why != "" {
		return why
	}
	if why := w.strayDisks(owners); why != "" {
		return why
	}
	return w.strayFiles(owners)
}

// factsOf is a copy of what was asked for with a pod; nil when it never was.
func (j *judge) factsOf(sub *subject) *facts {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.facts[sub.pod.Name]; f != nil {
		copied := *f
		return &copied
	}
	return nil
}

func (j *judge) touched(uid string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.disturbed[uid]
}

func (j *judge) forgot(uid string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.forgotten[uid]
}

// isLost says whether how a container has ended may have been kept by podsync alone, and that is
// damaged: it is shown as one that cannot be found then, and starts again if its policy is so.
func (j *judge) isLost(uid, name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record(uid, name).lost
}

func inShort(pod *v1.Pod) string {
	var out []string
	for _, st := range statuses(pod) {
		out = append(out, fmt.Sprintf("%s restarts=%d ready=%v %s", st.Name, st.RestartCount, st.Ready, strings.Join(strings.Fields(st.State.String()), " ")))
	}
	return fmt.Sprintf("phase %s, reason %q, deletion %v, %s", pod.Status.Phase, pod.Status.Reason, pod.DeletionTimestamp, strings.Join(out, "; "))
}

// missed says what of a pod's outcome has not come.
func (w *world) missed(sub *subject, pod *v1.Pod, f *facts) string {
	if evicted, why := f.judged(pod); evicted {
		return why
	}
	want := map[outcome]v1.PodPhase{runs: v1.PodRunning, crashes: v1.PodRunning, succeeds: v1.PodSucceeded, fails: v1.PodFailed, waits: v1.PodPending}[sub.end]
	if w.judge.touched(uidOf(pod)) && sub.pod.Spec.RestartPolicy != v1.RestartPolicyAlways && ended(pod) {
		return "" // a process that was killed may end such a pod otherwise than it would have ended
	}
	if f.unsure && sub.pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && ended(pod) {
		return "" // it ended by a stop of which the next podsync did not know
	}
	if ok, why := w.gaveWay(sub, pod); ok || why != "" {
		return why
	}
	if pod.Status.Phase != want {
		return "should be " + string(want)
	}
	if !f.change.IsZero() && pod.Spec.Containers[0].Image == newImage {
		st := pod.Status.ContainerStatuses
		if len(st) == 0 || w.madeFrom(uidOf(pod), st[0].Name) != newImage && !finished(&sub.pod.Spec, st[0]) {
			return "runs the old image"
		}
	}
	if name := w.judge.apart(sub, uidOf(pod)); name != "" {
		return "was restarted without its container " + name
	}
	switch sub.end {
	case runs:
		for _, st := range pod.Status.ContainerStatuses {
			again := true
			if end := st.State.Terminated; end != nil {
				again, _ = restarts(&sub.pod.Spec, st.Name, end.ExitCode)
				again = again || w.judge.owes(sub, uidOf(pod), st.Name)
			}
			if st.State.Running == nil && again {
				return "has a container that does not run"
			}
		}
		for _, st := range pod.Status.EphemeralContainerStatuses {
			if st.State.Waiting != nil { // for its image, say: what has failed is tried again for minutes
				return "has a debug container that is still to come"
			}
		}
	case waits:
		for _, st := range pod.Status.ContainerStatuses {
			if r := st.State.Waiting; r != nil && (strings.Contains(r.Reason, "ImagePull") || r.Reason == "InvalidImageName") {
				return ""
			}
		}
		return "should wait for its image"
	case crashes:
		st := pod.Status.ContainerStatuses
		if sub.shape == "bad hook" && len(st) == 1 && st[0].State.Running != nil {
			break // podsync crashed while the hook ran: it is not known how that ended
		}
		if len(st) != 1 || st[0].RestartCount == 0 {
			return "should have been restarted"
		}
	}
	if why := w.staleSelf(sub, pod); why != "" {
		return why
	}
	return w.staleFile(sub, pod)
}

// madeFrom is the image that the newest container of a name was made from, which
// may have gone since.
func (w *world) madeFrom(uid, name string) (image string) {
	for _, c := range w.rt.Snapshot().Containers {
		if c.PodUID() == uid && c.Name() == name {
			image = c.Config.GetImage().GetUserSpecifiedImage()
		}
	}
	return image
}

// finished says whether a container has ended for good.
func finished(spec *v1.PodSpec, st v1.ContainerStatus) bool {
	if st.State.Terminated == nil {
		return false
	}
	again, _ := restarts(spec, st.Name, st.State.Terminated.ExitCode)
	return !again
}

// staleFile says whether a ConfigMap's volume does not have its newest content.
func (w *world) staleFile(sub *subject, pod *v1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap == nil || ended(pod) {
			continue
		}
		m, err := w.api.Admin().CoreV1().ConfigMaps(namespace).Get(w.t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
		w.must(err)
		data, err := os.ReadFile(filepath.Join(w.dir, "root", "pods", string(pod.UID), "volumes", "kubernetes.io~configmap", v.Name, "a"))
		if err != nil || string(data) != m.Data["a"] {
			return fmt.Sprintf("has %q in the file of its ConfigMap, not %q (%v)", data, m.Data["a"], err)
		}
	}
	return ""
}

// untrue says what a status says that is not so in the runtime.
func (w *world) untrue(sub *subject, pod *v1.Pod, snapshot fakecri.Snapshot) string {
	newest := map[string]*fakecri.ContainerInfo{}
	for i := range snapshot.Containers {
		c := &snapshot.Containers[i]
		if c.PodUID() == uidOf(pod) && c.State != fakecri.Created {
			newest[c.Name()] = c
		}
	}
	for _, st := range append(statuses(pod), pod.Status.EphemeralContainerStatuses...) {
		if why := untrueContainer(st, newest[st.Name], ended(pod) || w.judge.forgot(uidOf(pod)) || w.judge.isLost(uidOf(pod), st.Name)); why != "" {
			return "container " + st.Name + " " + why
		}
	}
	if ready, want := isReady(pod), !ended(pod) && w.readyIs(sub, pod, newest); ready != want {
		return fmt.Sprintf("Ready is %v, not %v", ready, want)
	}
	return ""
}

func untrueContainer(st v1.ContainerStatus, c *fakecri.ContainerInfo, over bool) string {
	if c == nil {
		if st.State.Running != nil || st.State.Terminated != nil && !over {
			return "is not in the runtime"
		}
		return ""
	}
	attempt := int(c.Config.GetMetadata().GetAttempt())
	if int(st.RestartCount) < attempt {
		return fmt.Sprintf("was restarted %d times", attempt)
	}
	if over && c.State == fakecri.Exited && int(st.RestartCount) > attempt {
		return "" // a later one is shown, which a reclaim has removed, and this one not
	}
	end := st.State.Terminated
	if end == nil && st.State.Waiting != nil {
		end = st.LastTerminationState.Terminated
	}
	switch {
	case c.State == fakecri.Running && (st.State.Running == nil || st.ContainerID != "containerd://"+c.ID):
		return "runs as " + c.ID
	case c.State == fakecri.Running && !st.State.Running.StartedAt.Time.Equal(c.StartedAt.Truncate(time.Second)):
		return "has run since " + c.StartedAt.String()
	case c.State == fakecri.Exited && st.State.Running != nil:
		return "has ended"
	case c.State == fakecri.Exited && end == nil:
		return "has ended, which is not shown"
	case c.State == fakecri.Exited && end.Reason == "RestartingAllContainers" && end.ContainerID == "containerd://"+c.ID:
		return "" // what a restart of all containers ended is shown with 137
	case c.State == fakecri.Exited && (end.ExitCode != c.ExitCode || end.ContainerID != "containerd://"+c.ID):
		return fmt.Sprintf("has ended as %s with code %d, not as %s with %d", c.ID, c.ExitCode, end.ContainerID, end.ExitCode)
	}
	return ""
}

func isReady(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// readyIs is whether a pod is ready in truth.
func (w *world) readyIs(sub *subject, pod *v1.Pod, newest map[string]*fakecri.ContainerInfo) bool {
	ready := func(c *v1.Container) bool {
		have := newest[c.Name]
		return have != nil && have.State == fakecri.Running && sub.ready(c, have.Config.GetMetadata().GetAttempt(), time.Since(have.StartedAt))
	}
	for i := range pod.Spec.Containers {
		if !ready(&pod.Spec.Containers[i]) {
			return false
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; sidecar(c) && !ready(c) {
			return false
		}
	}
	return true
}

// strayRuntime says what the runtime has that it should not.
func strayRuntime(snapshot fakecri.Snapshot, owners map[string]*v1.Pod) string {
	ready := map[string]int{}
	for _, s := range snapshot.Sandboxes {
		uid := s.Config.GetMetadata().GetUid()
		pod := owners[uid]
		if pod == nil {
			return fmt.Sprintf("sandbox %s of pod %s is left", s.ID, s.Config.GetMetadata().GetName())
		}
		if why := strayNetwork(s); why != "" {
			return why
		}
		if s.State == fakecri.Ready {
			ready[uid]++
			if ended(pod) {
				return "the sandbox of the ended pod " + pod.Name + " still stands"
			}
		}
		if ready[uid] > 1 {
			return "pod " + pod.Name + " has two sandboxes"
		}
	}
	for _, c := range snapshot.Containers {
		pod := owners[c.PodUID()]
		if pod == nil {
			return fmt.Sprintf("container %s of pod %s is left", c.Name(), c.Sandbox.GetMetadata().GetName())
		}
		if c.State == fakecri.Running && ended(pod) {
			return fmt.Sprintf("container %s of the ended pod %s runs", c.Name(), pod.Name)
		}
	}
	return ""
}

// strayFiles says what lies on the disk or is mounted without an owner.
func (w *world) strayFiles(owners map[string]*v1.Pod) string {
	pods := filepath.Join(w.dir, "root", "pods")
	for _, m := range w.mounts.Mounts() {
		if strings.HasPrefix(m, w.stagings()) {
			continue // see strayDisks
		}
		rest, ok := strings.CutPrefix(m, pods+"/")
		uid, _, _ := strings.Cut(rest, "/")
		pod := owners[uid]
		if !ok || pod == nil {
			return "mount without an owner: " + m
		}
		if ended(pod) {
			return "mount of the ended pod " + pod.Name + ": " + m
		}
	}
	dirs, _ := os.ReadDir(pods)
	for _, d := range dirs {
		if owners[d.Name()] == nil {
			return "directory without an owner: " + d.Name()
		}
	}
	logs, _ := os.ReadDir(filepath.Join(w.dir, "logs", "pods"))
	for _, d := range logs {
		parts := strings.Split(d.Name(), "_")
		if owners[parts[len(parts)-1]] == nil {
			return "logs without an owner: " + d.Name()
		}
	}
	links, _ := os.ReadDir(filepath.Join(w.dir, "logs", "containers"))
	for _, l := range links {
		target, _ := os.Readlink(filepath.Join(w.dir, "logs", "containers", l.Name()))
		dir := filepath.Base(filepath.Dir(filepath.Dir(target)))
		parts := strings.Split(dir, "_")
		if owners[parts[len(parts)-1]] == nil {
			return "link to a log without an owner: " + l.Name()
		}
	}
	return ""
}

// stillness is how long it is watched that nothing goes on.
const stillness = 3 * time.Minute

// staysQuiet checks that a node on which nothing happens does nothing.
func (w *world) staysQuiet() {
	for _, sub := range w.scenario.subjects {
		if f := w.judge.factsOf(sub); f != nil && f.unwanted.IsZero() && sub.end != runs && sub.end != succeeds && sub.end != fails {
			return // it crashes, or pulls again and again
		}
		if len(sub.probes) > 0 {
			return
		}
	}
	writes, history := len(w.api.Writes()), len(w.rt.History())
	time.Sleep(stillness)
	for _, wr := range w.api.Writes()[writes:] {
		if wr.GVR.Resource == "pods" {
			old, _ := wr.Old.(*v1.Pod)
			now, _ := wr.New.(*v1.Pod)
			if onlyHowMuchIsUsed(old, now) {
				continue
			}
			w.judge.fail("nothing happens, and yet a pod was written at %s: %s", wr.At.UTC().Format("15:04:05.000"), cmp.Diff(old, now))
			return
		}
	}
	if now := w.rt.History(); len(now) != history {
		w.judge.fail("nothing happens, and yet the runtime was changed: %+v", now[history])
	}
}

// onlyHowMuchIsUsed says whether a write changes nothing but what a resize that
// waits says: it is decided on again every three minutes, and names how much the
// other pods have by then.
func onlyHowMuchIsUsed(old, now *v1.Pod) bool {
	if old == nil || now == nil {
		return false
	}
	without := func(pod *v1.Pod) (said string, rest v1.PodStatus) {
		rest = *pod.Status.DeepCopy()
		for i := range rest.Conditions {
			if c := &rest.Conditions[i]; c.Type == v1.PodResizePending && c.Reason == v1.PodReasonDeferred {
				said, c.Message, c.LastProbeTime = c.Message, "", metav1.Time{}
			}
		}
		return said, rest
	}
	before, a := without(old)
	after, b := without(now)
	return before != "" && after != "" && before != after && equality.Semantic.DeepEqual(a, b)
}
