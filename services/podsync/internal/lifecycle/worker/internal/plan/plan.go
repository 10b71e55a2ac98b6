package plan

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// planner carries one call of Plan.
type planner struct {
	s     *State
	out   Output
	views []*view
	names podutil.Index[string, *view]
	// observed finds what the runtime has by its id.
	observed podutil.Index[string, podstate.Container]
	volumes  podutil.Index[string, v1.Volume]
	// end says why the pod is to end; nil while it is to run.
	end *end
	// sandbox is the usable sandbox; nil when there is none.
	sandbox *podstate.Sandbox
	// round is the newest of the pod's containers; see Container.Round.
	round int
	// startsFirst: a new round waits for first starts of this one.
	startsFirst bool
	// lastNeeding is the place of the last live container that sidecars before it go on
	// for; below zero when there is none.
	lastNeeding int
	// What is asked for each container is found out once.
	progress     progress
	ends         regularEnds
	inUse        inSandbox
	orphansGrace int64
	// Of restartingAll, mayRestartAll and volumesTried.
	betweenTheRounds, rulesForAll, volumesSeenTo once
}

// once is a question that has the same answer for the whole of a plan.
type once int8

// ask is the answer, which find gives at first.
func (o *once) ask(find func() bool) bool {
	if *o == 0 {
		*o = -1
		if find() {
			*o = 1
		}
	}
	return *o > 0
}

// Plan computes what to do for one pod. Applied to the state that its actions
// lead to, it ends with no actions.
func Plan(s State) Output {
	p := &planner{}
	p.look(&s)
	p.askAgain()
	if !s.Observed.Known {
		p.out.Status = *s.Reported.DeepCopy()
		p.wait("runtime", "", "the runtime has not been looked at yet", "polylet status shows whether the runtime answers", time.Time{})
		p.since()
		return p.out
	}
	p.end = p.ending()
	p.findRound()
	if p.end == nil && !s.EndSince.IsZero() {
		// It had come to its end; sidecars that are being stopped do not bring it back.
		p.end = &end{phase: p.lastPhase()}
	}
	if waits := p.keepStop(); waits && p.end == nil {
		// Nothing begins that would end at once.
	} else if p.end == nil && s.Admission.Decision == podstate.AdmissionPending {
		p.wait("admission", "", cmp.Or(s.Admission.Message, "admission has not decided yet"), admissionAdvice(s.Admission.Reason), time.Time{})
	} else if p.end == nil {
		p.run()
	}
	if p.end != nil {
		p.out.Terminating = true
		p.stop()
	}
	p.endHooks()
	p.out.Status = p.status()
	p.targets()
	p.underWay()
	p.since()
	return p.out
}

// askAgain makes sure that what could not be decided is decided on again.
func (p *planner) askAgain() {
	if p.s.Pod != nil && p.s.Admission.Decision == podstate.AdmissionPending && p.s.AdmitAgain > 0 {
		p.wake(p.s.Now.Add(p.s.AdmitAgain))
	}
	if at := p.s.Resize.AskAt; !at.IsZero() {
		p.wake(at)
	}
}

// emit adds an action unless it runs already or has to wait after a failure, and says
// whether it did. An image whose container has become due waits for no failure of before.
func (p *planner) emit(a podstate.Action) (begins bool) {
	if _, running := p.s.InFlight[a.Key]; running && !a.Replace {
		return false
	}
	if f, failed := p.s.Failures[a.Key]; failed && (a.Early || !f.Early || f.Away) {
		if at := f.due(a.Kind); p.s.Now.Before(at) {
			p.wake(at)
			kind := waitKind(a.Kind)
			if f.Away {
				kind = "runtime"
			}
			p.out.Waits = append(p.out.Waits, podstate.Wait{
				Kind: kind, Object: p.objectOf(a), Action: a.Key, Reason: f.Message, Advice: advice(a.Kind, f), Retry: at,
			})
			return false
		}
	}
	p.out.Actions = append(p.out.Actions, a)
	return true
}

// running says whether an action of the key runs.
func (p *planner) running(k podstate.Kind, object string) bool {
	_, ok := p.s.InFlight[podstate.Key{Kind: k, Object: object}]
	return ok
}

// anyRunning says whether an action of any of the kinds runs.
func (p *planner) anyRunning(kinds ...podstate.Kind) bool {
	for k := range p.s.InFlight {
		for _, want := range kinds {
			if k.Kind == want {
				return true
			}
		}
	}
	return false
}

// cancel asks for the end of all running actions of the kinds.
func (p *planner) cancel(kinds ...podstate.Kind) {
	for k := range p.s.InFlight {
		for _, want := range kinds {
			if k.Kind == want {
				p.out.Cancel = append(p.out.Cancel, k)
			}
		}
	}
}

// wake makes sure that the pod is planned again at t.
func (p *planner) wake(t time.Time) {
	if p.out.Wake.IsZero() || t.Before(p.out.Wake) {
		p.out.Wake = t
	}
}

func (p *planner) wait(kind, object, reason, advice string, retry time.Time) {
	p.out.Waits = append(p.out.Waits, podstate.Wait{Kind: kind, Object: object, Reason: reason, Advice: advice, Retry: retry})
}

// due is when the action is tried again.
func (f Failure) due(k podstate.Kind) time.Time {
	if !f.Retry.IsZero() && !f.Away {
		return f.Retry
	}
	return f.At.Add(retryDelay(k, f))
}

// retryDelay is how long a failed action waits before it is tried again.
func retryDelay(k podstate.Kind, f Failure) time.Duration {
	if f.Away {
		return exponential(250*time.Millisecond, f.Count, 2*time.Second)
	}
	switch k {
	case podstate.PullImage:
		if f.Reason == "ErrImageNeverPull" || f.Reason == "InvalidImageName" {
			return exponential(10*time.Second, f.Count, 60*time.Second)
		}
		return exponential(firstBackoff, f.Count, longestBackoff)
	case podstate.SetupVolumes, podstate.TeardownVolumes:
		return exponential(500*time.Millisecond, f.Count, 122*time.Second)
	case podstate.ResizeContainer, podstate.RaiseCgroup, podstate.FitCgroup:
		return exponential(time.Second, f.Count, 30*time.Second)
	case podstate.StartContainer, podstate.MakeSandbox:
		return exponential(time.Second, f.Count, 15*time.Second)
	default:
		return exponential(500*time.Millisecond, f.Count, 10*time.Second)
	}
}

func exponential(first time.Duration, count int, longest time.Duration) time.Duration {
	d := first
	for i := 1; i < count && d < longest; i++ {
		d *= 2
	}
	return min(d, longest)
}

func waitKind(k podstate.Kind) string {
	switch k {
	case podstate.PullImage:
		return "image"
	case podstate.SetupVolumes, podstate.TeardownVolumes:
		return "volume"
	case podstate.MakeSandbox, podstate.StopSandbox, podstate.RemoveSandbox:
		return "sandbox"
	case podstate.KeepAllocation, podstate.RaiseCgroup, podstate.ResizeContainer, podstate.FitCgroup:
		return "resize"
	case podstate.DeleteObject:
		return "apiserver"
	case podstate.KeepStop, podstate.KeepStatus, podstate.BeginStop, podstate.KillContainer, podstate.RemoveContainer, podstate.RemoveCgroup, podstate.RemoveDirectories:
		return "termination"
	default:
		return "container"
	}
}

func (p *planner) fullID(id string) string {
	if id == "" {
		return ""
	}
	return cmp.Or(p.s.Node.RuntimeName, "containerd") + "://" + id
}
