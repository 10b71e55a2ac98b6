package plan

import (
	"maps"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// Outcome is how an action ended.
type Outcome struct {
	Action podstate.Action
	// Failure is how it failed, with Reason, Message, At and Away; nil when it went
	// well. Of SetupVolumes, Volumes are the failures of single volumes, while the
	// others are set up, and Standing are those that stand all the same; nil when
	// Failure is of all of them.
	Failure  *Failure
	Volumes  map[string]Failure
	Standing []string
	// Unremovable is the id of what a StartContainer could not remove; empty for nothing.
	Unremovable string
	// Cancelled: it was cut short on purpose.
	Cancelled bool
	// At is when it ended: the State may not have been told of the time since it began.
	At time.Time
	// ImageRef is what PullImage found, AllocatedAt when KeepAllocation kept.
	ImageRef    string
	AllocatedAt time.Time
}

// Noted is what came of an action's end.
type Noted struct {
	// Failure is what counts from now on; its Count is zero when none does. News says
	// that people do not know of it yet.
	Failure Failure
	News    bool
	// ResizeBegan is when the resize began that is over now; zero when none is.
	// ResizeInEffect: it is not over because another has replaced it.
	ResizeBegan    time.Time
	ResizeInEffect bool
}

// Launch takes in that an action begins. It does not when it began too often within a
// second: that counts as a failure of it.
func (s *State) Launch(a podstate.Action) (Noted, bool) {
	if s.repeats.tooMany(a.Key, s.Now) {
		return s.fail(Outcome{Action: a, Failure: &Failure{
			Reason: "Repeated", Message: "it was done many times within a second and is still to be done; it is tried again later", At: s.Now,
		}}), false
	}
	s.InFlight[a.Key] = a
	if a.Kind == podstate.BeginStop || a.Kind == podstate.KillContainer {
		s.Stops[a.ID] = s.Stops[a.ID].Ask(a, s.Now)
	}
	return Noted{}, true
}

// Ended takes in how an action that was launched ended.
func (s *State) Ended(o Outcome) Noted {
	a := o.Action
	delete(s.InFlight, a.Key)
	if stop, ok := s.Stops[a.ID]; ok && a.Kind == podstate.BeginStop {
		stop.PreStopDone = true // however it ended
		s.Stops[a.ID] = stop
	}
	if o.Failure != nil {
		s.ResizeFailed(a)
	}
	switch {
	case o.Failure == nil:
		delete(s.Failures, a.Key)
		return s.succeeded(o)
	case a.Kind == podstate.PullImage && a.Image != s.imageOf(a):
		// Another image is asked for meanwhile: that this one cannot be had says
		// nothing of it.
		return Noted{}
	case o.Cancelled:
		return Noted{}
	}
	return s.fail(o)
}

// fail notes a failure; see retryDelay for when the action is due again.
func (s *State) fail(o Outcome) Noted {
	a, f := o.Action, *o.Failure
	switch a.Kind {
	case podstate.StartContainer:
		if o.Unremovable != "" && !s.Unremovable[o.Unremovable] {
			// A restart forgets it, and nothing was tried of the start: the next one goes on
			// beside it at once.
			s.Unremovable[o.Unremovable] = true
			return Noted{}
		}
		s.forgetImages(a.Container)
	case podstate.SetupVolumes:
		whole := &f
		if o.Volumes != nil {
			whole = nil
		}
		news := s.Volumes.Ended(s.Pod, a, o.Volumes, whole)
		s.Volumes.Stand(o.Standing)
		f.Count = 1
		return Noted{Failure: f, News: news}
	case podstate.TeardownVolumes:
		if s.Volumes.DownAgain {
			f.At, f.Retry = time.Time{}, time.Time{}
		}
		s.Volumes.DownAgain = false
	}
	before := s.Failures[a.Key]
	f = f.After(before, a)
	s.Failures[a.Key] = f
	return Noted{Failure: f, News: before.Count == 0 || !reason.Alike(before.Message, f.Message)}
}

// forgetImages lets the images of a container and of image volumes be looked
// for anew: a start that failed may have failed because one was removed
// meanwhile.
func (s *State) forgetImages(container string) {
	delete(s.Images, container)
	if s.Pod == nil {
		return
	}
	for i := range s.Pod.Spec.Volumes {
		delete(s.Images, podstate.VolumeKey(s.Pod.Spec.Volumes[i].Name))
	}
}

// succeeded notes what an action that went well has changed beside the runtime.
func (s *State) succeeded(o Outcome) Noted {
	a := o.Action
	switch a.Kind {
	case podstate.KeepAllocation, podstate.RaiseCgroup, podstate.ResizeContainer, podstate.FitCgroup:
		began, inEffect := s.ResizeActed(a, o.AllocatedAt)
		return Noted{ResizeBegan: began, ResizeInEffect: inEffect}
	case podstate.PullImage:
		s.Images[a.Object] = Image{Spec: a.Image, Ref: o.ImageRef, RestartCount: a.Attempt, Early: a.Early, At: o.At}
	case podstate.SetupVolumes:
		s.Volumes.Ended(s.Pod, a, nil, nil)
	case podstate.KeepStop:
		s.StopUnkept = false
	case podstate.KeepStatus:
		s.StatusKept = true
	case podstate.MakeSandbox:
		s.initsBegin()
	case podstate.StopSandbox:
		s.StoppedSandboxes[a.ID] = true
	case podstate.TeardownVolumes:
		s.Cleaned.Volumes = true
		s.Volumes.Gone()
	case podstate.RemoveCgroup:
		s.Cleaned.Cgroup = true
	case podstate.RemoveDirectories:
		s.Cleaned.Directories = true
	case podstate.DeleteObject:
		s.Cleaned.API = true
	}
	return Noted{}
}

// initsBegin notes that the init containers run, in a new sandbox, maybe once more: what was
// found of the images of who comes after them was before that is due.
func (s *State) initsBegin() {
	if s.Pod == nil || len(s.Pod.Spec.InitContainers) == 0 {
		return
	}
	first := s.Pod.Spec.InitContainers[0].Name
	for name, img := range s.Images {
		if c, _ := podutil.Container(s.Pod, name); c != nil && name != first {
			img.Early = true
			s.Images[name] = img
		}
	}
}

// imageOf is the image that the spec names now for what a PullImage pulls; empty when
// it names none.
func (s *State) imageOf(a podstate.Action) string {
	if a.Volume != "" {
		if v := podutil.ImageVolume(s.Pod, a.Volume); v != nil {
			return v.Reference
		}
		return ""
	}
	if c, _ := podutil.Container(s.Pod, a.Container); c != nil {
		return c.Image
	}
	return ""
}

// Observe takes in what the runtime shows, and forgets the stops and failures of what is
// gone.
func (s *State) Observe(o podstate.Observed) {
	s.Observed = o
	containers := o.ByID()
	gone := func(id string) bool { return containers.Find(id) == nil && o.Sandbox(id) == nil }
	maps.DeleteFunc(s.Stops, func(id string, _ ContainerStop) bool { return gone(id) })
	maps.DeleteFunc(s.StoppedSandboxes, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(s.Failures, func(k podstate.Key, _ Failure) bool { return aboutID(k.Kind) && gone(k.Object) })
}

// aboutID says whether actions of a kind are about one container or sandbox of
// the runtime, which they name by its id.
func aboutID(k podstate.Kind) bool {
	switch k {
	case podstate.BeginStop, podstate.KillContainer, podstate.ResizeContainer, podstate.RemoveContainer, podstate.StopSandbox, podstate.RemoveSandbox:
		return true
	}
	return false
}

// takeHooks puts into the observation what only this process knows: how postStart hooks
// stand.
func (s *State) takeHooks() {
	if len(s.Hooks) == 0 {
		return
	}
	containers := make([]podstate.Container, len(s.Observed.Containers))
	copy(containers, s.Observed.Containers)
	for i := range containers {
		if h, ok := s.Hooks[containers[i].ID]; ok {
			containers[i].Hook = h
		}
	}
	s.Observed.Containers = containers
	known := s.Observed.ByID()
	for id, h := range s.Hooks {
		if h == podstate.HookDone || known.Find(id) == nil && len(s.InFlight) == 0 {
			delete(s.Hooks, id)
		}
	}
}

// ObjectsChanged takes in that an object has changed which the pod refers to, or that a
// driver of its volumes has come: what failed for it may work now.
func (s *State) ObjectsChanged() {
	for k, f := range s.Failures {
		if k.Kind == podstate.StartContainer || k.Kind == podstate.MakeSandbox || k.Kind == podstate.TeardownVolumes {
			f.At, f.Retry = time.Time{}, time.Time{}
			s.Failures[k] = f
		}
	}
	s.Volumes.TryAgain()
	_, s.Volumes.Again = s.InFlight[podstate.Key{Kind: podstate.SetupVolumes}]
	_, s.Volumes.DownAgain = s.InFlight[podstate.Key{Kind: podstate.TeardownVolumes}]
}

// forgetFailures is for a new spec: what failed because of the old one need not wait.
func (s *State) forgetFailures() {
	clear(s.Failures)
	s.Volumes.ForgetFailures()
}

// repeats notices actions that are done again and again without effect, so that
// a disagreement with the runtime cannot keep a processor busy.
type repeats struct {
	since  time.Time
	counts map[podstate.Key]int
}

// mostRepeats of one key within a second.
const mostRepeats = 10

func (r *repeats) tooMany(key podstate.Key, now time.Time) bool {
	if r.counts == nil || now.Sub(r.since) > time.Second {
		*r = repeats{since: now, counts: map[podstate.Key]int{}}
	}
	r.counts[key]++
	return r.counts[key] > mostRepeats
}
