package execute

import (
	"context"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

const reasonResize = "ResizeError"

// keepAllocation makes an allocation outlive a crash before anything of it is
// carried out.
func (e *Executor) keepAllocation(ctx context.Context, t Task) (Result, error) {
	rest, had := resize.Rest(t.Pod), resize.Of(t.Pod)
	entry := allocation.Entry{Allocation: *t.Action.Allocation, Generation: t.Action.Generation, At: time.Now(), Rest: &rest}
	if !had.Equal(entry.Allocation) {
		entry.Before = &had
	}
	if err := e.deps.Allocations.Put(ctx, t.UID, entry); err != nil {
		return Result{}, reason.New(reasonResize, err)
	}
	return Result{AllocatedAt: entry.At}, nil
}

// allows says whether what is in use allows the limits that a resize makes smaller, before
// anything of the resize is done: it would else be carried out in part. Each is looked at
// again before it is set, so that one whose use is not known now stops nobody.
func (e *Executor) allows(ctx context.Context, limits []podstate.MemoryLimit) error {
	var below []error
	for _, l := range limits {
		if used, err := e.deps.Runtime.ContainerMemory(ctx, l.ID); err == nil && used >= uint64(l.Bytes) {
			below = append(below, belowUsage(l, used))
		}
	}
	if err := utilerrors.NewAggregate(below); err != nil {
		return fmt.Errorf("cannot decrease memory limits: %w", err)
	}
	return nil
}

func belowUsage(l podstate.MemoryLimit, used uint64) error {
	return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", l.Container, l.Bytes, used)
}

// raiseCgroup tells the runtime what the pod may use and lets the pod's cgroup
// grow to it.
func (e *Executor) raiseCgroup(ctx context.Context, t Task) error {
	if err := e.allows(ctx, t.Action.Limits); err != nil {
		return reason.New(reasonResize, err)
	}
	if t.Action.ID != "" {
		overhead, containers := e.deps.Builder.SandboxResources(t.Pod)
		if err := e.deps.Runtime.UpdateSandbox(ctx, t.Action.ID, overhead, containers); err != nil {
			return reason.New(reasonResize, fmt.Errorf("tell the runtime what sandbox %s may use: %w", t.Action.ID, err))
		}
	}
	return reason.New(reasonResize, e.deps.Cgroups.Raise(ctx, t.Pod))
}

// resizeContainer changes a running container. A memory limit below what the
// container uses would make the kernel kill it, so that is refused.
func (e *Executor) resizeContainer(ctx context.Context, t Task) error {
	a := t.Action
	if a.Shrinks {
		used, err := e.deps.Runtime.ContainerMemory(ctx, a.ID)
		if err != nil {
			return reason.New(reasonResize, fmt.Errorf("cannot decrease memory limits: look up what container %q uses: %w", a.Container, err))
		}
		if l := (podstate.MemoryLimit{Container: a.Container, ID: a.ID, Bytes: a.Kernel.Memory}); used >= uint64(l.Bytes) {
			return reason.New(reasonResize, fmt.Errorf("cannot decrease memory limits: %w", belowUsage(l, used)))
		}
	}
	if err := e.deps.Runtime.UpdateContainer(ctx, a.ID, e.deps.Builder.Resized(t.Pod, a.Container, a.Kernel)); err != nil {
		return reason.New(reasonResize, fmt.Errorf("change the resources of container %q: %w", a.Container, err))
	}
	return reason.New(reasonResize, e.deps.Observer.SawContainer(ctx, a.ID, e.sandboxIDOf(t, a.ID)))
}

// resize carries out the actions of a resize.
func (e *Executor) resize(life, ctx context.Context, t Task) (Result, error) {
	switch t.Action.Kind {
	case podstate.KeepAllocation:
		return e.keepAllocation(ctx, t)
	case podstate.RaiseCgroup:
		return Result{}, e.raiseCgroup(ctx, t)
	case podstate.ResizeContainer:
		return Result{}, e.observed(life, t, func() error { return e.resizeContainer(ctx, t) })
	default:
		return Result{}, e.fitCgroup(ctx, t)
	}
}

// fitCgroup lets the pod's cgroup shrink to what the pod was allocated, with which all
// of it is in effect.
func (e *Executor) fitCgroup(ctx context.Context, t Task) error {
	if err := e.deps.Cgroups.Fit(ctx, t.Pod); err != nil {
		return reason.New(reasonResize, err)
	}
	e.deps.Allocations.InEffect(t.UID, t.Action.Generation)
	return nil
}
