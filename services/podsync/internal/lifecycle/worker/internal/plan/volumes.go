package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// Volumes is how the pod's volumes stand, each by itself. The zero value is
// that of a pod none of whose volumes is known to be set up.
//
// An entry says what has come of a volume so far; that it is wanted the pod's spec
// says, and that it is being set up or torn down, the action in flight, which all of
// the pod's volumes share. Rules ask whether an entry is ready, current or has failed,
// and no more: what a volume goes through until then (attached, staged, published) is
// storage's, which may be at it for several pods at once.
type Volumes struct {
	// Version counts, in this run of the process, the changes of what a volume may
	// show of its pod: labels, annotations, and cpu and memory.
	Version int
	// Of holds an entry for each volume of which something was tried, by name. The
	// empty name is what all lie in: as long as that fails, none is tried.
	Of map[string]Volume
	// Once: all were set up at the same time once in this run of the process.
	Once bool
	// Again: an object has changed since the set-up in flight began, which may have
	// read the one before.
	Again bool
	// DownAgain is the same of the teardown in flight: a driver has come, and the teardown
	// may have missed it while it waits for another volume's server.
	DownAgain bool
}

// Volume is how one volume stands.
type Volume struct {
	// SetUp: it is there, and shows Version of its pod.
	SetUp   bool
	Version int
	// Stands: it could not be made anew, and what was set up before is there all the
	// same, perhaps of a previous run.
	Stands bool
	// Failure is how its set-up failed since it last went well; Count is zero when
	// it did not.
	Failure Failure
}

// nextTry is when a volume may be tried again.
func (v Volume) nextTry() time.Time {
	if v.Failure.Count == 0 {
		return time.Time{}
	}
	return v.Failure.At.Add(retryDelay(podstate.SetupVolumes, v.Failure))
}

// Ended takes in how the set-up of volumes ended: failed are those that could not be
// set up, or, with whole, all of them. It says whether that is news to people.
func (v *Volumes) Ended(pod *v1.Pod, a podstate.Action, failed map[string]Failure, whole *Failure) (news bool) {
	if v.Of == nil {
		v.Of = map[string]Volume{}
	}
	if v.Again {
		v.Again = false
		defer v.TryAgain()
	}
	if whole != nil {
		return v.fail("", *whole)
	}
	for _, name := range a.Volumes {
		if f, is := failed[name]; is {
			news = v.fail(name, f) || news
			continue
		}
		v.Of[name] = Volume{SetUp: true, Version: a.Version}
	}
	v.Once = v.Once || pod != nil && v.ready(pod)
	return news
}

// Stand notes which of the volumes that could not be set up stand all the same.
func (v *Volumes) Stand(names []string) {
	for _, name := range names {
		e := v.Of[name]
		e.Stands = true
		v.Of[name] = e
	}
}

// fail notes that a volume could not be set up; what is there of it stays.
func (v *Volumes) fail(name string, f Failure) (news bool) {
	e := v.Of[name]
	news = e.Failure.Count == 0 || !reason.Alike(e.Failure.Message, f.Message)
	f.Count = e.Failure.Count + 1
	e.Failure = f
	v.Of[name] = e
	return news
}

// Gone notes that all were torn down.
func (v *Volumes) Gone() { v.Of = nil }

// TryAgain lets what failed be tried at once.
func (v *Volumes) TryAgain() { v.failures(func(f *Failure) { f.At = time.Time{} }) }

// ForgetFailures forgets what failed.
func (v *Volumes) ForgetFailures() { v.failures(func(f *Failure) { *f = Failure{} }) }

func (v *Volumes) failures(change func(*Failure)) {
	for name, e := range v.Of {
		if e.Failure.Count > 0 {
			change(&e.Failure)
			v.Of[name] = e
		}
	}
}

// fails says whether one of them could not be set up as it should be.
func (v *Volumes) fails() bool {
	for _, e := range v.Of {
		if e.Failure.Count > 0 {
			return true
		}
	}
	return false
}

// current says whether all of the pod's volumes show its newest version.
func (v *Volumes) current(pod *v1.Pod) bool {
	return v.all(pod, v.shows)
}

// changed counts the versions of the pod that a volume may tell apart.
func (v *Volumes) changed(old, now *v1.Pod) {
	if old != now && old != nil && now != nil && !sameInVolumes(old, now) {
		v.Version++
	}
}

// sameInVolumes says whether no volume can tell two versions of a pod apart:
// what of a pod changes and files may show are labels, annotations, and the
// cpu and memory of its containers and of the pod as a whole. A debug container
// may mount one volume beneath another, which has a directory for it then.
func sameInVolumes(a, b *v1.Pod) bool {
	same := equality.Semantic.DeepEqual
	if !same(a.Labels, b.Labels) || !same(a.Annotations, b.Annotations) || !same(a.Spec.Resources, b.Spec.Resources) || len(a.Spec.Containers) != len(b.Spec.Containers) || len(a.Spec.InitContainers) != len(b.Spec.InitContainers) || len(a.Spec.EphemeralContainers) != len(b.Spec.EphemeralContainers) {
		return false
	}
	for i := range a.Spec.InitContainers {
		if !same(a.Spec.InitContainers[i].Resources, b.Spec.InitContainers[i].Resources) {
			return false
		}
	}
	for i := range a.Spec.Containers {
		if !same(a.Spec.Containers[i].Resources, b.Spec.Containers[i].Resources) {
			return false
		}
	}
	return true
}

// shows says whether a volume shows the pod's newest version.
func (v *Volumes) shows(e Volume) bool { return e.SetUp && e.Version == v.Version }

// ready says whether all of the pod's volumes are set up, for whatever version
// of it: what changes while a pod is there, or is deleted then, as a ConfigMap,
// must not keep its containers from starting again.
func (v *Volumes) ready(pod *v1.Pod) bool {
	return v.all(pod, func(e Volume) bool { return e.SetUp })
}

// stand says whether all of the pod's volumes are set up, though those that a previous
// run has set up cannot be made anew.
func (v *Volumes) stand(pod *v1.Pod) bool {
	return v.all(pod, func(e Volume) bool { return e.SetUp || e.Stands })
}

func (v *Volumes) all(pod *v1.Pod, good func(Volume) bool) bool {
	for _, name := range volumeNames(pod) {
		if !good(v.Of[name]) {
			return false
		}
	}
	return true
}

// volumeNames are the volumes of a pod, behind what all lie in.
func volumeNames(pod *v1.Pod) []string {
	names := make([]string, 1, 1+len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		names = append(names, pod.Spec.Volumes[i].Name)
	}
	return names
}
