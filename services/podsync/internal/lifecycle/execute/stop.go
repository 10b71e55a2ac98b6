package execute

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// killContainer stops a container within its grace period. It takes no place
// among the stops: the signal is cheap, the rest is waiting for the process, and
// what waited for a place would be missing from the grace period.
func (e *Executor) killContainer(ctx context.Context, t Task) error {
	a := t.Action
	if !a.Announced {
		e.announceStop(t)
	}
	if err := e.deps.Runtime.StopContainer(ctx, a.ID, podutil.Seconds(a.GraceSeconds)); err != nil {
		return e.killFailed(ctx, t, reasonKill, err)
	}
	if err := e.sawContainer(ctx, t, a.ID, e.sandboxIDOf(t, a.ID), podstate.StateExited); err != nil {
		return reason.New(reasonKill, err)
	}
	if c := e.container(t, a.ID); c != nil && c.State == podstate.StateRunning {
		return reason.New(reasonKill, fmt.Errorf("the runtime says that container %s was stopped, but it runs", a.ID))
	}
	return nil
}

func (e *Executor) announceStop(t Task) {
	if t.Pod != nil {
		e.deps.Events.Container(t.Pod, t.Action.Container, v1.EventTypeNormal, "Killing", t.Action.Reason)
	}
}

// beginStop announces the stop of a container and runs its preStop hook until
// that ends or ctx does, which is when its time is over. That a hook fails
// changes nothing but an event.
func (e *Executor) beginStop(life, ctx context.Context, t Task) {
	e.announceStop(t)
	c := e.stopping(t)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return
	}
	ip := ""
	if o := e.deps.Observer.Current(t.UID); len(o.Sandboxes) > 0 {
		ips := o.Sandboxes[0].IPs
		if o.Sandboxes[0].HostNetwork {
			ips = e.deps.HostIPs()
		}
		if len(ips) > 0 {
			ip = ips[0]
		}
	}
	ended := timeline.Start(ctx, timeline.PreStop, c.Name, hookKind(c.Lifecycle.PreStop))
	err := e.deps.Hooks.Run(ctx, hook.Target{Pod: t.Pod, Container: c, ContainerID: t.Action.ID, PodIP: ip}, c.Lifecycle.PreStop)
	ended(err)
	if err != nil && life.Err() == nil && t.Pod != nil {
		e.deps.Events.Container(t.Pod, c.Name, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// stopping is the container that is to be stopped: the spec's, or, of a pod that
// no source knows, what its own record says of it; nil when neither is there.
func (e *Executor) stopping(t Task) *v1.Container {
	if t.Pod != nil {
		c, _ := podutil.Container(t.Pod, t.Action.Container)
		return c
	}
	if c := e.container(t, t.Action.ID); c != nil {
		return &v1.Container{Name: c.Name, Lifecycle: &v1.Lifecycle{PreStop: c.PreStop}}
	}
	return nil
}

// hookKind says in a word what a hook does. What it runs may be secret.
func hookKind(h *v1.LifecycleHandler) string {
	switch {
	case h.Exec != nil:
		return "exec"
	case h.HTTPGet != nil:
		return "HTTP GET"
	case h.Sleep != nil:
		return "sleep"
	default:
		return "TCP"
	}
}

func (e *Executor) killFailed(ctx context.Context, t Task, word string, err error) error {
	if t.Pod != nil && ctx.Err() == nil {
		e.deps.Events.Pod(t.Pod, v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
	}
	return reason.New(word, err)
}

// last is the place in the order of what nobody waits for, the removal of what
// has ended: behind all pods that are there now. Later ones come after it, so
// that it comes in the end.
func last() limiter.Order { return limiter.Order{Idle: true, Created: time.Now()} }

func (e *Executor) removeContainer(ctx context.Context, t Task) error {
	release, err := e.deps.Stops.Acquire(ctx, last())
	if err != nil {
		return reason.New("FailedRemoveContainer", err)
	}
	defer release()
	count := -1
	if c := e.container(t, t.Action.ID); c != nil {
		count = c.RestartCount
	}
	if err := e.deps.Runtime.RemoveContainer(ctx, t.Action.ID); err != nil {
		return reason.New("FailedRemoveContainer", err)
	}
	e.deps.Observer.Gone(t.Action.ID)
	e.removeLogs(t, count)
	return nil
}
