package worker

import (
	"context"
	"errors"
	"fmt"
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
	if noted, begins := w.state.Launch(a); !begins {
		w.failed(a, noted)
		return
	}
	life := w.life
	ctx, cancel := context.WithCancel(life)
	f := &flight{cancel: cancel, began: w.state.Now, step: w.line.Begin(string(a.Kind), w.objectOf(a), a.Reason, w.state.Now)}
	if w.cancels == nil {
		w.cancels = map[podstate.Key]*flight{}
	}
	w.cancels[a.Key] = f
	w.log.V(1).Info("Begin", "action", a.Kind, "object", a.Object, "attempt", a.Attempt)
	task := execute.Task{Pod: w.state.Pod, UID: w.uid, Action: a, Order: w.order(), Hooked: w.hooked}
	w.reg.running.Go(func() {
		result, err := w.reg.deps.Executor.Do(life, timeline.Within(ctx, f.step), task)
		o := outcome{action: a, result: result, err: err, cancelled: ctx.Err() != nil}
		cancel()
		w.inbox.tell(func(in *told) { in.done = append(in.done, o) })
	})
}

// hooked is told by actions how a postStart hook stands.
func (w *worker) hooked(id string, h podstate.Hook) {
	w.inbox.tell(func(in *told) {
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
	now := time.Now()
	f.step.End(now, stepError(o))
	if a.Kind == podstate.KeepStop && w.ended && w.source != apiSource {
		w.reg.deps.Ends.Forget(w.uid) // it was over before this was kept; see note
	}
	if a.Kind == podstate.PullImage {
		w.first.pulling = max(w.first.pulling, now.Sub(f.began))
	}
	if o.err == nil && len(w.reclaims) > 0 && removes(a.Kind) {
		w.removed++
	}
	w.unattachable(o)
	noted := w.state.Ended(w.planned(o, now))
	switch {
	case noted.Failure.Count > 0:
		w.failed(a, noted)
	case o.err != nil && o.cancelled:
		w.log.V(1).Info("Cut short", "action", a.Kind, "object", a.Object)
	}
	if !noted.ResizeBegan.IsZero() {
		w.reg.deps.Metrics.resized(noted.ResizeBegan, noted.ResizeInEffect)
	}
	w.reg.deps.Metrics.acted(w.state.Pod, o, reason.Of(o.err))
}

// planned is an outcome in the planner's words.
func (w *worker) planned(o outcome, now time.Time) plan.Outcome {
	out := plan.Outcome{Action: o.action, At: now, Cancelled: o.cancelled, ImageRef: o.result.ImageRef, AllocatedAt: o.result.AllocatedAt}
	if o.err == nil {
		return out
	}
	f := plan.Failure{Reason: reason.Of(o.err), Message: short(o.err.Error(), mostSaid), At: now, Retry: reason.RetryAt(o.err), Away: cri.IsAway(o.err), Volume: podstate.VolumeCauseOf(o.err)}
	out.Failure = &f
	var left podstate.Unremovable
	if errors.As(o.err, &left) {
		out.Unremovable = left.ID
	}
	var single podstate.VolumeErrors
	if errors.As(o.err, &single) {
		out.Volumes, out.Standing = make(map[string]plan.Failure, len(single)), single.Standing()
		for _, e := range single {
			of := f
			of.Message, of.Volume, of.Away = short(e.Error(), mostSaid), podstate.VolumeCauseOf(e), cri.IsAway(e)
			out.Volumes[e.Volume] = of
		}
	}
	return out
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

// How much of an error stands in a line of the log, and is kept as long as it holds, in
// bytes: what the spec says may be in it, an image's name or a path of a megabyte, and it may
// be different each time.
const (
	mostLogged = 4 << 10
	mostSaid   = 32 << 10
)

// short cuts what is longer than that.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// failed tells of a failure.
func (w *worker) failed(a podstate.Action, noted plan.Noted) {
	f := noted.Failure
	if noted.News {
		w.log.Info("An action failed; it is tried again", "action", a.Kind, "object", a.Object, "reason", f.Reason, "err", short(f.Message, mostLogged))
	}
	w.uncollected(a, f)
}

// uncollected tells of what is dead and cannot be removed: it takes the node's
// room. One failure may pass, and that the runtime is away is told elsewhere.
func (w *worker) uncollected(a podstate.Action, f plan.Failure) {
	if a.Kind != podstate.RemoveContainer && a.Kind != podstate.RemoveSandbox || f.Count != 2 || f.Away {
		return
	}
	pod := "of a pod that is gone, " + string(w.uid)
	if w.state.Pod != nil {
		pod = "of pod " + w.state.Pod.Namespace + "/" + w.state.Pod.Name
	}
	w.reg.deps.Events.Node(v1.EventTypeWarning, "ContainerGCFailed", fmt.Sprintf("%s %s %s: %s", a.Kind, a.ID, pod, f.Message))
}

func (w *worker) cancelAll() {
	for _, f := range w.cancels {
		f.cancel()
	}
}
