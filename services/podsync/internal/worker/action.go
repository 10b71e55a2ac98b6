package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/cri"
	"github.com/polylet/polylet/services/podsync/internal/execute"
	"github.com/polylet/polylet/services/podsync/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/timeline"
)

// outcome is how an action ended.
type outcome struct {
	action plan.Action
	// image is what the spec named when a pull began; empty for other actions.
	image  string
	result execute.Result
	err    error
	// cancelled: it was cut short on purpose.
	cancelled bool
}

// launch starts an action, or, when one of its key runs that it replaces, cuts
// that one short and starts after it.
func (w *worker) launch(a plan.Action) {
	if f := w.cancels[a.Key]; f != nil {
		if a.Replace {
			f.next = &a
			f.cancel()
		}
		return
	}
	if w.repeats.tooMany(a.Key, w.state.Now) {
		w.fail(a, "Repeated", errors.New("it was done many times within a second and is still to be done; it is tried again later"))
		return
	}
	life := w.life
	ctx, cancel := context.WithCancel(life)
	f := &flight{cancel: cancel, began: w.state.Now, step: w.line.Begin(string(a.Kind), w.objectOf(a), a.Reason, w.state.Now)}
	if w.cancels == nil {
		w.cancels = map[plan.Key]*flight{}
	}
	w.cancels[a.Key] = f
	w.state.InFlight[a.Key] = a
	w.stopBegins(a)
	w.log.V(1).Info("Begin", "action", a.Kind, "object", a.Object, "attempt", a.Attempt)
	task := execute.Task{Pod: w.state.Pod, UID: w.uid, Action: a, Order: w.order(), Hooked: w.hooked}
	image := ""
	if a.Kind == plan.PullImage {
		image = w.imageOf(a.Object)
	}
	w.reg.running.Go(func() {
		result, err := w.reg.deps.Executor.Do(life, timeline.Within(ctx, f.step), task)
		o := outcome{action: a, image: image, result: result, err: err, cancelled: ctx.Err() != nil}
		cancel()
		w.tell(func(in *inbox) { in.done = append(in.done, o) })
	})
}

// stopBegins notes when the stop of a container began.
func (w *worker) stopBegins(a plan.Action) {
	if a.Kind != plan.BeginStop && a.Kind != plan.KillContainer {
		return
	}
	if _, begun := w.state.Stops[a.ID]; !begun {
		w.state.Stops[a.ID] = plan.ContainerStop{Began: w.state.Now}
	}
}

// forgetGone forgets the stops of containers that are gone, and what failed of
// them and of sandboxes that are.
func (w *worker) forgetGone() {
	there := map[string]bool{}
	for i := range w.state.Observed.Containers {
		there[w.state.Observed.Containers[i].ID] = true
	}
	for i := range w.state.Observed.Sandboxes {
		there[w.state.Observed.Sandboxes[i].ID] = true
	}
	maps.DeleteFunc(w.state.Stops, func(id string, _ plan.ContainerStop) bool { return !there[id] })
	maps.DeleteFunc(w.state.Failures, func(k plan.Key, _ plan.Failure) bool { return aboutID(k.Kind) && !there[k.Object] })
}

// aboutID says whether actions of a kind are about one container or sandbox of
// the runtime, which they name by its id.
func aboutID(k plan.Kind) bool {
	switch k {
	case plan.BeginStop, plan.KillContainer, plan.ResizeContainer, plan.RemoveContainer, plan.StopSandbox, plan.RemoveSandbox:
		return true
	}
	return false
}

// hooked is told by actions how a postStart hook stands.
func (w *worker) hooked(id string, h plan.Hook) {
	w.tell(func(in *inbox) {
		if in.hooks == nil {
			in.hooks = map[string]plan.Hook{}
		}
		in.hooks[id] = h
	})
}

// finish takes in how an action ended.
func (w *worker) finish(o outcome) {
	a := o.action
	f := w.cancels[a.Key]
	delete(w.cancels, a.Key)
	delete(w.state.InFlight, a.Key)
	now := time.Now()
	f.step.End(now, stepError(o))
	if stop, ok := w.state.Stops[a.ID]; ok && a.Kind == plan.BeginStop {
		stop.PreStopDone = true // however it ended
		w.state.Stops[a.ID] = stop
	}
	if a.Kind == plan.PullImage {
		w.first.pulling = max(w.first.pulling, now.Sub(f.began))
	}
	switch {
	case o.err == nil:
		delete(w.state.Failures, a.Key)
		w.succeeded(o)
	case a.Kind == plan.PullImage && o.image != w.imageOf(a.Object):
		// Another image is asked for meanwhile: that this one cannot be had says
		// nothing of it.
	case o.cancelled:
		w.log.V(1).Info("Cut short", "action", a.Kind, "object", a.Object)
	default:
		w.fail(a, reasonOf(o.err), o.err)
	}
	w.reg.deps.Metrics.acted(w.state.Pod, o, reasonOf(o.err))
	if f.next != nil {
		w.launch(*f.next)
	}
}

// stepError is what the timeline shows of how an action ended.
func stepError(o outcome) error {
	switch {
	case o.err == nil:
		return nil
	case o.cancelled:
		return errors.New("cut short")
	}
	if reason := reasonOf(o.err); reason != "" {
		return fmt.Errorf("%s: %w", reason, o.err)
	}
	return o.err
}

func reasonOf(err error) string {
	var e *execute.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// fail notes a failure; the planner says when the action is tried again.
func (w *worker) fail(a plan.Action, reason string, err error) {
	if a.Kind == plan.StartContainer {
		w.forgetVolumeImages()
	}
	failure := w.state.Failures[a.Key]
	if failure.Count == 0 || failure.Message != err.Error() {
		w.log.Info("An action failed; it is tried again", "action", a.Kind, "object", a.Object, "reason", reason, "error", err.Error())
	}
	w.state.Failures[a.Key] = plan.Failure{
		Reason: reason, Message: err.Error(), Count: failure.Count + 1, At: time.Now(), RestartCount: a.Attempt,
		Away: cri.IsAway(err),
	}
}

// forgetVolumeImages lets the images of image volumes be looked for anew: a
// start that failed may have failed because one was removed meanwhile.
func (w *worker) forgetVolumeImages() {
	if w.state.Pod == nil {
		return
	}
	for i := range w.state.Pod.Spec.Volumes {
		delete(w.state.Images, plan.VolumeKey(w.state.Pod.Spec.Volumes[i].Name))
	}
}

// succeeded notes what an action that went well has changed beside the runtime.
func (w *worker) succeeded(o outcome) {
	a, r := o.action, o.result
	switch a.Kind {
	case plan.KeepAllocation, plan.RaiseCgroup, plan.ResizeContainer, plan.FitCgroup:
		w.resizeActed(a, r.AllocatedAt)
	case plan.PullImage:
		w.state.Images[a.Object] = plan.Image{Spec: o.image, Ref: r.ImageRef, RestartCount: a.Attempt}
	case plan.SetupVolumes:
		w.state.Volumes.Ready = true
	case plan.TeardownVolumes:
		w.state.Cleaned.Volumes = true
		w.state.Volumes.Ready = false
	case plan.RemoveCgroup:
		w.state.Cleaned.Cgroup = true
	case plan.RemoveDirectories:
		w.state.Cleaned.Directories = true
	case plan.DeleteObject:
		w.state.Cleaned.API = true
	}
}

// imageOf is the image that the spec names for a container or, with a
// VolumeKey, for an image volume.
func (w *worker) imageOf(name string) string {
	if w.state.Pod == nil {
		return ""
	}
	spec := &w.state.Pod.Spec
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Image != nil && plan.VolumeKey(v.Name) == name {
			return v.Image.Reference
		}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return spec.InitContainers[i].Image
		}
	}
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return spec.Containers[i].Image
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return spec.EphemeralContainers[i].Image
		}
	}
	return ""
}

// keepVolumes sets the volumes of a running pod up again where the planner has
// no use for that: after a restart of this process, so that their content is
// kept current, and when labels or annotations changed, which files may show.
// It returns when to try again; zero for never.
func (w *worker) keepVolumes(out plan.Output) time.Time {
	if w.state.Pod == nil || out.Terminating || w.state.Volumes.Ready || w.state.Admission.Decision != plan.Admitted || !w.anyRunning() {
		return time.Time{}
	}
	a := plan.Action{Key: plan.Key{Kind: plan.SetupVolumes}}
	if f, failed := w.state.Failures[a.Key]; failed {
		if again := f.At.Add(keepVolumesAgain); again.After(w.state.Now) {
			return again
		}
	}
	w.launch(a)
	return time.Time{}
}

// keepVolumesAgain is how long keepVolumes waits after a failure.
const keepVolumesAgain = 10 * time.Second

func (w *worker) anyRunning() bool {
	for i := range w.state.Observed.Containers {
		if w.state.Observed.Containers[i].State == plan.StateRunning {
			return true
		}
	}
	return false
}

func (w *worker) cancelAll() {
	for _, f := range w.cancels {
		f.cancel()
	}
}

// repeats notices actions that are done again and again without effect, so that
// a disagreement with the runtime cannot keep a processor busy.
type repeats struct {
	since  time.Time
	counts map[plan.Key]int
}

// mostRepeats of one key within a second.
const mostRepeats = 10

func (r *repeats) tooMany(key plan.Key, now time.Time) bool {
	if r.counts == nil || now.Sub(r.since) > time.Second {
		*r = repeats{since: now, counts: map[plan.Key]int{}}
	}
	r.counts[key]++
	return r.counts[key] > mostRepeats
}
