package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// Pods that together ask for more of the node than it has, and one that is
// critical: what it lacks is taken from the others.
const (
	filler   = "filler"
	critical = "critical"
	// highest is the priority of pods that the node itself needs.
	highest = int32(2_000_001_000)
)

// asking makes a pod whose only container asks for some cpus.
func (m *maker) asking() {
	c := m.main(m.forever())
	m.cpu = int64(10 + m.rng.IntN(30))
	if m.shape == critical {
		priority := highest
		m.spec.Priority, m.spec.PriorityClassName = &priority, "system-node-critical"
		m.cpu = int64(20 + m.rng.IntN(40))
	}
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(m.cpu, resource.DecimalSI)}
	if m.shape == filler && m.rng.IntN(3) == 0 {
		memory := resource.MustParse("64Mi")
		c.Resources.Requests[v1.ResourceMemory] = memory
		c.Resources.Limits = c.Resources.Requests.DeepCopy() // Guaranteed: the last to go
	}
}

// crowd adds, to some scenarios, pods that fill the node and a critical one.
func (s *scenario) crowd(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 4))
	if rng.IntN(4) > 0 {
		return
	}
	shapes := []string{filler, filler, critical, filler, filler}[:3+rng.IntN(3)]
	rng.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	for i, shape := range shapes {
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(shape, fmt.Sprint("k", i), &grace, rng)
		s.put(sub)
		s.life(rng, sub)
	}
}

// asks is the most of the cpus that a pod ever asked for.
func (s *subject) asks() int64 {
	most := s.cpu
	for _, size := range s.sizes {
		most = max(most, size.cpu)
	}
	return most
}

// mayBePreempted says whether a pod has something that a critical one may need.
func (s *subject) mayBePreempted() bool { return s.shape != critical && s.asks() > 0 }

// crowded says whether all that was ever asked for is more than the node has.
func (j *judge) crowded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all int64
	for _, f := range j.facts {
		all += f.sub.asks()
	}
	return all > nodeCPU
}

// makesRoomLocked notes, when a critical pod was asked for, that the others may have to
// go.
func (j *judge) makesRoomLocked(f *facts) {
	if f.sub.shape == critical {
		j.critical = true
		for _, other := range j.facts {
			j.mayGo(other)
		}
	}
	if j.critical {
		j.mayGo(f)
	}
}

func (j *judge) mayGo(f *facts) {
	if f.sub.mayBePreempted() {
		f.because("a critical pod takes its place", "", time.Now(), f.sub.grace())
	}
}

// fits checks, at a start, that the pods that run do not have more of the cpus
// than there are; those that are resized are counted when it is quiet. One whose
// object was taken away by force is nobody's any more: what it asked for is not
// known to a podsync that begins after that.
func (j *judge) fits(tr fakecri.Transition, f *facts) {
	if f.sub.cpu == 0 {
		return
	}
	var all int64
	for uid, owner := range j.owners {
		if j.live(uid) > 0 && !owner.gone {
			all += owner.sub.cpu
		}
	}
	if all > nodeCPU {
		j.violationLocked("container %s of pod %s was started: %d cpus of %d are asked for by pods that run", tr.Name, tr.Pod, all, nodeCPU)
	}
}

// preemptedLocked checks a status that says that the pod had to make room.
func (j *judge) preemptedLocked(old, now *v1.Pod) {
	if !isVictim(now) || isVictim(old) || isEvicted(now) {
		return
	}
	f := j.owners[uidOf(now)]
	if !j.critical || f == nil || !f.sub.mayBePreempted() {
		j.violationLocked("pod %s was preempted, for nobody or for nothing", now.Name)
	}
	if !saysTerminated(now) {
		j.violationLocked("pod %s was preempted without a condition that says so: %v", now.Name, now.Status.Conditions)
	}
}

// isVictim says whether a pod's status says that it had to make room. One whose
// processes all ended with 0 has succeeded, and only its condition says so.
func isVictim(pod *v1.Pod) bool {
	return pod.Status.Reason == "Preempting" || pod.Status.Phase == v1.PodSucceeded && saysTerminated(pod)
}

// saysTerminated says whether a condition names the node as who ended the pod.
func saysTerminated(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet {
			return true
		}
	}
	return false
}

// gaveWay says whether a pod may have failed because there was no room for it,
// and if not, why not.
func (w *world) gaveWay(sub *subject, pod *v1.Pod) (ok bool, why string) {
	reason := pod.Status.Reason
	if !isVictim(pod) && reason != "OutOfcpu" || sub.asks() == 0 {
		return false, ""
	}
	switch {
	case sub.shape == critical:
		return false, "is critical, and others would have made room"
	case !w.judge.crowded():
		return false, "failed though there is room for all"
	case reason == "OutOfcpu" && w.judge.hadRoom(sub):
		return false, "was rejected for the room of pods that had ended"
	case reason == "OutOfcpu" && len(pod.Status.ContainerStatuses) > 0:
		return false, "was rejected though it ran"
	}
	return true, ""
}
