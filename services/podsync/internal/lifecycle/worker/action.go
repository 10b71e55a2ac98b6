package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// outcome is how an action ended.
type outcome struct {
	action podstate.Action
	// image is what the spec named when a pull began; empty for other actions.
	image  string
	result execute.Result
	err    error
	// cancelled: it was cut short on purpose.
	cancelled bool
}

// launch starts an action, or, when one of its key runs that it replaces, cuts
// that one short: what is to be done is planned anew when it has returned.
func (w *worker) launch(a podstate.Action) {
	if f := w.cancels[a.Key]; f != nil {
		if a.Replace {
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
		w.cancels = map[podstate.Key]*flight{}
	}
	w.cancels[a.Key] = f
	w.state.InFlight[a.Key] = a
	w.stopBegins(a)
	w.log.V(1).Info("Begin", "action", a.Kind, "object", a.Object, "attempt", a.Attempt)
	task := execute.Task{Pod: w.state.Pod, UID: w.uid, Action: a, Order: w.order(), Hooked: w.hooked}
	image := ""
	if a.Kind == podstate.PullImage {
		image = w.imageOf(a.Object)
	}
	w.reg.running.Go(func() {
		result, err := w.reg.deps.Executor.Do(life, timeline.Within(ctx, f.step), task)
		o := outcome{action: a, image: image, result: result, err: err, cancelled: ctx.Err() != nil}
		cancel()
		w.tell(func(in *inbox) { in.done = append(in.done, o) })
	})
}

// stopBegins notes when and why the stop of a container began, and its period.
func (w *worker) stopBegins(a podstate.Action) {
	if a.Kind != podstate.BeginStop && a.Kind != podstate.KillContainer {
		return
	}
	w.state.Stops[a.ID] = w.state.Stops[a.ID].Ask(a, w.state.Now)
}

// forgetGone forgets the stops of containers and sandboxes that are gone, and
// what failed of them.
func (w *worker) forgetGone() {
	there := map[string]bool{}
	for i := range w.state.Observed.Containers {
		there[w.state.Observed.Containers[i].ID] = true
	}
	for i := range w.state.Observed.Sandboxes {
		there[w.state.Observed.Sandboxes[i].ID] = true
	}
	maps.DeleteFunc(w.state.Stops, func(id string, _ plan.ContainerStop) bool { return !there[id] })
	maps.DeleteFunc(w.state.StoppedSandboxes, func(id string, _ bool) bool { return !there[id] })
	maps.DeleteFunc(w.state.Failures, func(k podstate.Key, _ plan.Failure) bool { return aboutID(k.Kind) && !there[k.Object] })
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

// hooked is told by actions how a postStart hook stands.
func (w *worker) hooked(id string, h podstate.Hook) {
	w.tell(func(in *inbox) {
		if in.hooks == nil {
			in.hooks = map[string]podstate.Hook{}
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
	if stop, ok := w.state.Stops[a.ID]; ok && a.Kind == podstate.BeginStop {
		stop.PreStopDone = true // however it ended
		w.state.Stops[a.ID] = stop
	}
	if a.Kind == podstate.KeepStop && w.ended && w.source != apiSource {
		w.reg.deps.Ends.Forget(w.uid) // it was over before this was kept; see note
	}
	if o.err != nil {
		w.resizeFailed(a)
	}
	if a.Kind == podstate.PullImage {
		w.first.pulling = max(w.first.pulling, now.Sub(f.began))
	}
	switch {
	case o.err == nil:
		delete(w.state.Failures, a.Key)
		w.succeeded(o)
	case a.Kind == podstate.PullImage && o.image != w.imageOf(a.Object):
		// Another image is asked for meanwhile: that this one cannot be had says
		// nothing of it.
	case o.cancelled:
		w.log.V(1).Info("Cut short", "action", a.Kind, "object", a.Object)
	default:
		w.fail(a, reason.Of(o.err), o.err)
	}
	w.reg.deps.Metrics.acted(w.state.Pod, o, reason.Of(o.err))
}

// stepError is what the timeline shows of how an action ended.
func stepError(o outcome) error {
	switch {
	case o.err == nil:
		return nil
	case o.cancelled:
		return errors.New("cut short")
	}
	if word := reason.Of(o.err); word != "" {
		return fmt.Errorf("%s: %w", word, o.err)
	}
	return o.err
}

// mostLogged is how much of an error stands in a line of the log, in bytes: what the
// spec says may be in it, an image's name or a path of a megabyte, and it may be
// different each time.
const mostLogged = 4 << 10

// short cuts what is too long for the log.
func short(text string) string {
	if len(text) <= mostLogged {
		return text
	}
	return strings.ToValidUTF8(text[:mostLogged], "") + " …"
}

// fail notes a failure; the planner says when the action is tried again.
func (w *worker) fail(a podstate.Action, word string, err error) {
	if a.Kind == podstate.StartContainer {
		w.forgetImages(a.Container)
	}
	before := w.state.Failures[a.Key]
	if before.Count == 0 || !reason.Alike(before.Message, err.Error()) {
		w.log.Info("An action failed; it is tried again", "action", a.Kind, "object", a.Object, "reason", word, "error", short(err.Error()))
	}
	failure := plan.Failure{Reason: word, Message: err.Error(), At: time.Now(), Away: cri.IsAway(err)}.After(before, a)
	w.uncollected(a, failure.Count, err)
	w.state.Failures[a.Key] = failure
}

// uncollected tells of what is dead and cannot be removed: it takes the node's
// room. One failure may pass, and that the runtime is away is told elsewhere.
func (w *worker) uncollected(a podstate.Action, times int, err error) {
	if a.Kind != podstate.RemoveContainer && a.Kind != podstate.RemoveSandbox || times != 2 || cri.IsAway(err) {
		return
	}
	pod := "of a pod that is gone, " + string(w.uid)
	if w.state.Pod != nil {
		pod = "of pod " + w.state.Pod.Namespace + "/" + w.state.Pod.Name
	}
	w.reg.deps.Events.Node(v1.EventTypeWarning, "ContainerGCFailed", fmt.Sprintf("%s %s %s: %v", a.Kind, a.ID, pod, err))
}

// forgetImages lets the images of a container and of image volumes be looked
// for anew: a start that failed may have failed because one was removed
// meanwhile.
func (w *worker) forgetImages(container string) {
	delete(w.state.Images, container)
	if w.state.Pod == nil {
		return
	}
	for i := range w.state.Pod.Spec.Volumes {
		delete(w.state.Images, podstate.VolumeKey(w.state.Pod.Spec.Volumes[i].Name))
	}
}

// succeeded notes what an action that went well has changed beside the runtime.
func (w *worker) succeeded(o outcome) {
	a, r := o.action, o.result
	switch a.Kind {
	case podstate.KeepAllocation, podstate.RaiseCgroup, podstate.ResizeContainer, podstate.FitCgroup:
		w.resizeActed(a, r.AllocatedAt)
	case podstate.PullImage:
		w.state.Images[a.Object] = plan.Image{Spec: o.image, Ref: r.ImageRef, RestartCount: a.Attempt}
	case podstate.SetupVolumes:
		if w.state.Pod != nil {
			w.state.Volumes.Done(w.state.Pod, a.Version)
		}
	case podstate.KeepStop:
		w.state.StopUnkept = false
	case podstate.StopSandbox:
		w.state.StoppedSandboxes[a.ID] = true
	case podstate.TeardownVolumes:
		w.state.Cleaned.Volumes = true
		w.state.Volumes.Gone()
	case podstate.RemoveCgroup:
		w.state.Cleaned.Cgroup = true
	case podstate.RemoveDirectories:
		w.state.Cleaned.Directories = true
	case podstate.DeleteObject:
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
		if v := &spec.Volumes[i]; v.Image != nil && podstate.VolumeKey(v.Name) == name {
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

func (w *worker) cancelAll() {
	for _, f := range w.cancels {
		f.cancel()
	}
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
