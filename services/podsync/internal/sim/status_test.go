package sim

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// write checks one change of an object in the apiserver.
func (j *judge) write(wr fakeapiserver.Write) {
	if wr.GVR.Resource == "persistentvolumeclaims" {
		j.claimWritten(wr)
	}
	if wr.GVR.Resource != "pods" {
		return
	}
	old, _ := wr.Old.(*v1.Pod)
	now, _ := wr.New.(*v1.Pod)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case old == nil:
		j.created(now)
	case now == nil:
		j.deleted(old, wr.UserAgent)
	case wr.Subresource == "status":
		j.w.tell("STATUS", "pod", now.Name, "phase", now.Status.Phase, "reason", now.Status.Reason, "containers", inShort(now))
		j.moved(old, now)
	}
}

// uidOf is the UID under which the runtime knows a pod: a mirror stands for a
// static one.
func uidOf(pod *v1.Pod) string {
	if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(pod.UID)
}

func (j *judge) created(pod *v1.Pod) {
	if f := j.facts[strings.TrimSuffix(pod.Name, "-"+nodeName)]; f != nil {
		j.owners[uidOf(pod)] = f
	}
}

// deleted checks that an object goes last.
func (j *judge) deleted(pod *v1.Pod, agent string) {
	j.w.tell("OBJECT gone", "pod", pod.Name, "by", agent)
	f := j.owners[uidOf(pod)]
	if f != nil {
		f.gone = true
	}
	if f == nil || f.sub.static || agent != "podsync" {
		return
	}
	if live := j.live(uidOf(pod)); live > 0 {
		j.violationLocked("the object of pod %s was deleted while %d of its containers ran", pod.Name, live)
	}
	if f.unwanted.IsZero() {
		j.violationLocked("the object of pod %s was deleted though nobody asked for it", pod.Name)
	}
	if !ended(pod) {
		j.violationLocked("the object of pod %s was deleted while its status did not say how it ended, but %q", pod.Name, pod.Status.Phase)
	}
	if evicted, why := f.judged(pod); evicted && why != "" {
		j.violationLocked("the object of pod %s was deleted, and its status, %s %q, is not that of one that %s", pod.Name, pod.Status.Phase, pod.Status.Reason, why)
	}
	if up := len(j.networks[uidOf(pod)]); up > 0 {
		j.violationLocked("the object of pod %s was deleted while the network of %d of its sandboxes is up", pod.Name, up)
	}
	for _, m := range j.w.mounts.Mounts() {
		if strings.Contains(m, "/pods/"+string(pod.UID)+"/") {
			j.violationLocked("the object of pod %s was deleted before its mount %s ended", pod.Name, m)
		}
	}
}

// live counts the running containers of a pod.
func (j *judge) live(uid string) int {
	n := 0
	for key, r := range j.names {
		if strings.HasPrefix(key, uid+"/") {
			n += len(r.live)
		}
	}
	return n
}

// moved checks one change of a status.
func (j *judge) moved(old, now *v1.Pod) {
	was, is := old.Status.Phase, now.Status.Phase
	if f := j.owners[uidOf(now)]; f != nil {
		f.phase = is
	}
	// What became of a static pod is known to its containers and logs only, of which
	// the fake runtime writes none: it begins anew when they are forgotten.
	unknown := now.Annotations[v1.MirrorPodAnnotationKey] != "" && j.forgotten[uidOf(now)]
	switch {
	case was != is && ended(old) && now.Annotations[v1.MirrorPodAnnotationKey] == "":
		// That a static pod has ended is known to podsync's own life only.
		j.violationLocked("the phase of pod %s went from %s to %s", now.Name, was, is)
	case was == v1.PodRunning && is == v1.PodPending && len(now.Spec.InitContainers) > 0 && (j.renewed[uidOf(now)] || len(j.ready[uidOf(now)]) == 0):
		delete(j.renewed, uidOf(now)) // its init containers run again, for a new sandbox or one that is still to be made
	case was == v1.PodRunning && is == v1.PodPending:
		j.violationLocked("the phase of pod %s went from Running to Pending", now.Name)
	case was != is && ended(now) && j.live(uidOf(now)) > 0:
		j.violationLocked("pod %s became %s while %d of its containers ran", now.Name, is, j.live(uidOf(now)))
	}
	if old.Status.StartTime != nil && !old.Status.StartTime.Equal(now.Status.StartTime) {
		j.violationLocked("the start time of pod %s went from %v to %v", now.Name, old.Status.StartTime, now.Status.StartTime)
	}
	if ended(old) && !unknown && old.Status.PodIP != "" && now.Status.PodIP != old.Status.PodIP {
		j.violationLocked("the address of pod %s, which has ended, went from %s to %q", now.Name, old.Status.PodIP, now.Status.PodIP)
	}
	if old.Status.HostIP != "" && now.Status.HostIP == "" {
		j.violationLocked("the node's address was taken back from pod %s", now.Name)
	}
	if now.Spec.HostNetwork && old.Status.PodIP != "" && now.Status.PodIP == "" {
		j.violationLocked("the address of pod %s, which is on the host's network, was taken back", now.Name)
	}
	if now.Status.ObservedGeneration < old.Status.ObservedGeneration {
		j.violationLocked("the observed generation of pod %s fell from %d to %d", now.Name, old.Status.ObservedGeneration, now.Status.ObservedGeneration)
	}
	j.preemptedLocked(old, now)
	j.evictedLocked(old, now)
	before := map[string]v1.ContainerStatus{}
	for _, st := range statuses(old) {
		before[st.Name] = st
	}
	for _, st := range statuses(now) {
		o := before[st.Name]
		if st.RestartCount < o.RestartCount && !unknown {
			j.violationLocked("the restart count of container %s of pod %s fell from %d to %d", st.Name, now.Name, o.RestartCount, st.RestartCount)
		}
		if o.State.Terminated != nil && st.State.Running != nil && o.ContainerID == st.ContainerID {
			j.violationLocked("container %s of pod %s, %s, went from terminated to running", st.Name, now.Name, st.ContainerID)
		}
	}
}

// statuses are those of init and regular containers.
func statuses(pod *v1.Pod) []v1.ContainerStatus {
	return append(append([]v1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}
