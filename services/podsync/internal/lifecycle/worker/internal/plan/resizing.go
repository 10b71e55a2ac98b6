package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// resizeAgain is how often a resize that waits is decided on again when nothing told
// that it may be allocated.
const resizeAgain = 3 * time.Minute

// Resize is how a change of a running pod's cpu and memory stands.
type Resize struct {
	// Kept is what the pod is allocated; nil before it is admitted. Stored says that
	// this is on the disk: it outlives a crash though there be no sandbox.
	Kept   *resize.Allocation
	Stored bool
	// Pending is why what the spec asks for is not allocated, nil when it is, and
	// AskAt when that is decided on again though nothing told that it may be; zero for
	// never.
	Pending *podstate.ResizePending
	AskAt   time.Time
	// Next is what was allocated and is not kept on the disk yet; Pod does not
	// have it before it is. Nil when there is none.
	Next *resize.Allocation
	// NextGeneration is the pod's generation that asked for Next.
	NextGeneration int64
	// Unkept is what Pod has while its spec asks for something else, or may come to
	// while there is no sandbox, and nothing on the disk says so yet; nil when
	// something does.
	Unkept *resize.Allocation
	// Generation is the one that asked for what Pod has, and At when it was
	// allocated; zero for what the pod was admitted with.
	Generation int64
	At         time.Time
	// Ours: this process has allocated that, so that a stop for it is one of Stops.
	Ours bool
	// Began is when this process began to bring what Pod has into effect; zero when
	// nothing is to be.
	Began time.Time
	// Unfinished: what was allocated is not known to be in effect.
	Unfinished bool
	// Raised: the pod's cgroup is no smaller than what was allocated.
	Raised bool
	// Sent is what the runtime was told last of a container, by id, in this
	// run of the process.
	Sent map[string]resources.Kernel
	// Unsure are the containers of which a change failed, by id: it may have been
	// made all the same, and what they have is not known until one goes well. The
	// value is the highest limit of memory in bytes that was tried; zero for none.
	Unsure map[string]int64
}

// Want takes in a new version of the pod, and says whether its spec is another.
func (s *State) Want(pod *v1.Pod) (changed bool) {
	old := s.Desired
	s.Desired, s.Pod = pod, pod
	if s.Resize.Kept != nil {
		s.Pod = s.Resize.Kept.Apply(pod)
	}
	if changed = old != nil && !equality.Semantic.DeepEqual(old.Spec, pod.Spec); changed {
		s.forgetFailures()
	}
	return changed
}

// Keep is that the pod has this allocation from now on.
func (s *State) Keep(a resize.Allocation) {
	s.Resize.Kept = &a
	s.Pod = a.Apply(s.Desired)
}

// Former is what is known of what a previous run had allocated.
type Former struct {
	// Had is what the pod counts as having.
	Had resize.Allocation
	// Stored: that is on the disk, with Generation and At of its allocation, zero for
	// what the pod was admitted with. Without At it is of a kubelet's file.
	Stored     bool
	Generation int64
	At         time.Time
	// Made is what the newest sandbox was made for; nil when that is not known.
	Made *resize.Allocation
	// Lost: what was kept on the disk since that sandbox was made is lost.
	Lost bool
}

// Resume takes up what a previous run had allocated. Whether that was carried out to
// its end, the status says that it had told.
func (s *State) Resume(f Former) {
	r := &s.Resize
	switch {
	case f.Stored:
		if r.Stored = true; f.Generation > 0 {
			r.Generation, r.At = f.Generation, f.At
		}
		r.Unfinished = !toldFinished(&s.Reported, f.Generation) || f.At.IsZero() && s.isBehind() && s.runsOtherThan(f.Had)
	case f.Lost:
		// What has become of the resize that was lost is looked at, and what the
		// status says of it is kept anew.
		r.Unfinished = s.runsOtherThan(f.Had)
		if f.Made != nil {
			// It may be what the spec asks for again: then nothing is allocated anew,
			// and yet something else may run.
			f.Had = *f.Made
			r.Unfinished = s.runsOtherThan(f.Had) || r.Unfinished
		}
	}
	s.Keep(f.Had)
}

// isBehind says whether the status tells of an older pod than this one. What was taken
// over from a kubelet's file may not have been carried out then: neither says that.
func (s *State) isBehind() bool {
	return s.Reported.ObservedGeneration > 0 && s.Reported.ObservedGeneration < s.Desired.Generation
}

// runsOtherThan says whether a container runs with other resources than with this
// allocation, which the pod has then.
func (s *State) runsOtherThan(a resize.Allocation) bool {
	s.Pod = a.Apply(s.Desired)
	return outOfStep(*s)
}

// toldFinished says whether a status tells that the resize of this generation
// was in effect: it knows the generation, and neither has the resize under way
// nor waiting to be allocated.
func toldFinished(st *v1.PodStatus, generation int64) bool {
	waits := podutil.Condition(st.Conditions, v1.PodResizePending)
	return st.ObservedGeneration >= generation && podutil.Condition(st.Conditions, v1.PodResizeInProgress) == nil &&
		(waits == nil || waits.ObservedGeneration > generation)
}

// MessageOpen is of a resize on which nothing can be decided yet.
const MessageOpen = "Not all pods of this node are known yet"

// OpenResize is why a resize waits on which nothing was decided yet in this run: what a
// previous one has told of it stands until then. The status would else say that it is done.
func (s *State) OpenResize() *podstate.ResizePending {
	told := podutil.Condition(s.Reported.Conditions, v1.PodResizePending)
	if told == nil || told.Status != v1.ConditionTrue || told.ObservedGeneration != s.Desired.Generation {
		return &podstate.ResizePending{Reason: v1.PodReasonDeferred, Message: MessageOpen, Generation: s.Desired.Generation}
	}
	return &podstate.ResizePending{Reason: told.Reason, Message: told.Message, Generation: told.ObservedGeneration}
}

// Due says whether a resize that waits is to be decided on again.
func (r *Resize) Due(now time.Time) bool { return !r.AskAt.IsZero() && !now.Before(r.AskAt) }

// Granted takes in what was decided of the pod's resources: what it is allocated, which
// generation asked for that, and why it is not what the newest one asks for.
func (s *State) Granted(allocated resize.Allocation, generation int64, pending *podstate.ResizePending, now time.Time) {
	r := &s.Resize
	r.Pending, r.Next, r.NextGeneration, r.Unkept = pending, nil, 0, nil
	if !allocated.Equal(*r.Kept) {
		r.Next, r.NextGeneration = &allocated, generation
	}
	if !r.Stored && r.Next == nil && (pending != nil || s.saidByNothing()) {
		r.Unkept = r.Kept
	}
	switch {
	case pending == nil:
		r.AskAt = time.Time{}
	case r.AskAt.IsZero() || r.Due(now):
		r.AskAt = now.Add(resizeAgain)
	}
}

// saidByNothing says whether the pod may come to ask for something else while
// there is no sandbox that says what it was admitted with.
func (s *State) saidByNothing() bool {
	return !s.Static && len(s.Observed.Sandboxes) == 0 && s.Resize.Kept.Asks()
}

// KeepsFirst says whether what the pod has is just being kept for the first time: if
// anybody was told of its admission now, a crash would leave a pod of which it is
// known that it was admitted, but not with what. Its sandbox, once it is there, says it
// too.
func (s *State) KeepsFirst() bool {
	_, keeping := s.InFlight[podstate.Key{Kind: podstate.KeepAllocation}]
	return keeping && !s.Begun && !s.Resize.Stored && s.saidByNothing()
}

// ResizeActed takes in that an action of a resize went well. It returns when the resize
// began that is over now, in effect or replaced by another; zero when none is.
func (s *State) ResizeActed(a podstate.Action, at time.Time) (began time.Time, inEffect bool) {
	r := &s.Resize
	switch a.Kind {
	case podstate.KeepAllocation:
		r.Stored = true
		if r.Kept != nil && r.Kept.Equal(*a.Allocation) {
			break // nothing of it changes
		}
		s.Keep(*a.Allocation)
		began, r.Began = r.Began, at
		r.Generation, r.At, r.Ours, r.Unfinished, r.Raised = a.Generation, at, true, true, false
		for k := range s.Failures {
			if k.Kind == podstate.ResizeContainer || k.Kind == podstate.RaiseCgroup || k.Kind == podstate.FitCgroup {
				delete(s.Failures, k)
			}
		}
	case podstate.RaiseCgroup:
		r.Raised = a.Generation == r.Generation // else it is that of an earlier size
	case podstate.ResizeContainer:
		if r.Sent == nil {
			r.Sent = map[string]resources.Kernel{}
		}
		r.Sent[a.ID] = a.Kernel
		delete(r.Unsure, a.ID)
	case podstate.FitCgroup:
		if a.Generation != r.Generation {
			break // another size was allocated meanwhile, and has all before it
		}
		began, r.Began, inEffect = r.Began, time.Time{}, true
		r.Unfinished, r.Raised = false, false
		clear(r.Sent)
		clear(r.Unsure)
	}
	return began, inEffect
}

// ResizeFailed takes in that a container may or may not have been changed.
func (s *State) ResizeFailed(a podstate.Action) {
	if a.Kind != podstate.ResizeContainer {
		return
	}
	r := &s.Resize
	if r.Unsure == nil {
		r.Unsure = map[string]int64{}
	}
	if most, again := r.Unsure[a.ID]; again && (most == 0 || a.Kernel.Memory > 0 && a.Kernel.Memory < most) {
		return
	}
	r.Unsure[a.ID] = a.Kernel.Memory
}

// Resized is the pod with what was allocated last.
func (s *State) Resized() *v1.Pod {
	if next := s.Resize.Next; next != nil {
		return next.Apply(s.Desired)
	}
	return s.Pod
}
