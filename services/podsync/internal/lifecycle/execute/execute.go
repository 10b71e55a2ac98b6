// Package execute carries the planner's actions out: against the runtime, the
// images, the volumes, the cgroups and the files of a pod's logs.
//
// It owns how an action is done, that there are never two containers of one start,
// and that what an action did is observed before it counts as done. It must never
// decide that something is to be done, nor try anything again: an action succeeds or
// fails once, and the planner says what follows. What it finds in the middle of an
// action, the action's own rules judge (podstate/found.go).
package execute

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// Executor carries actions out. Safe for concurrent use.
type Executor struct {
	cfg     Config
	deps    Deps
	metrics *metrics

	mu sync.Mutex
	// sandboxes keeps the configuration of each pod's sandbox: the runtime
	// wants it again with each container.
	sandboxes map[types.UID]madeSandbox
}

type madeSandbox struct {
	attempt uint32
	config  *runtimeapi.PodSandboxConfig
}

// New returns an Executor.
func New(cfg Config, deps Deps) *Executor {
	if cfg.SetupTimeout <= 0 {
		cfg.SetupTimeout = 2*time.Minute + 3*time.Second
	}
	if deps.ProcessAlive == nil {
		deps.ProcessAlive = processAlive
	}
	if deps.Returns == nil {
		deps.Returns = func(types.UID) bool { return false }
	}
	deps.Starts, deps.Stops = shownSlots{deps.Starts}, shownSlots{deps.Stops}
	return &Executor{cfg: cfg, deps: deps, metrics: newMetrics(deps.Metrics), sandboxes: map[types.UID]madeSandbox{}}
}

// Task is one action of one pod.
type Task struct {
	// Pod is nil for one that no source knows.
	Pod    *v1.Pod
	UID    types.UID
	Action podstate.Action
	Order  limiter.Order
	// Hooked is told how the postStart hook of a container stands. It is called
	// before the observation that shows the container running.
	Hooked func(containerID string, h podstate.Hook)
}

// Result is what an action found.
type Result struct {
	// ImageRef is set by PullImage.
	ImageRef string
	// AllocatedAt is set by KeepAllocation.
	AllocatedAt time.Time
}

// namespaceOf is a pod's; empty of one that no source knows.
func namespaceOf(pod *v1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.Namespace
}

// Do carries one action out. ctx ends the action; life is the process's: until
// it ends, what the action did is observed before Do returns, however long the
// runtime takes to say. Errors have a reason. What panics is this pod's failure.
func (e *Executor) Do(life, ctx context.Context, t Task) (_ Result, err error) {
	defer func() { err = e.told(t, err) }()
	defer contain.Panic(life, t.name(), &err)
	switch t.Action.Kind {
	case podstate.PullImage:
		return e.pull(ctx, t)
	case podstate.SetupVolumes:
		return Result{}, e.setupVolumes(ctx, t)
	case podstate.MakeSandbox:
		return Result{}, e.observed(life, t, func() error { return e.makeSandbox(ctx, t) })
	case podstate.StartContainer:
		return Result{}, e.observed(life, t, func() error { return e.startContainer(life, ctx, t) })
	case podstate.BeginStop:
		e.beginStop(life, ctx, t)
		return Result{}, nil
	case podstate.KillContainer:
		return Result{}, e.observed(life, t, func() error { return e.killContainer(ctx, t) })
	case podstate.StopSandbox:
		return Result{}, e.observed(life, t, func() error { return e.stopSandbox(ctx, t) })
	case podstate.KeepStop:
		return Result{}, e.keepStop(ctx, t)
	case podstate.KeepStatus:
		return Result{}, e.keepStatus(ctx, t)
	case podstate.KeepAllocation, podstate.RaiseCgroup, podstate.ResizeContainer, podstate.FitCgroup:
		return e.resize(life, ctx, t)
	case podstate.RemoveContainer:
		return Result{}, e.observed(life, t, func() error { return e.removeContainer(ctx, t) })
	case podstate.RemoveSandbox:
		return Result{}, e.observed(life, t, func() error { return e.removeSandbox(ctx, t) })
	case podstate.TeardownVolumes:
		return Result{}, reason.New("FailedUnmount", e.deps.Volumes.Teardown(ctx, t.UID, namespaceOf(t.Pod)))
	case podstate.RemoveCgroup:
		return Result{}, reason.New("FailedRemoveCgroup", e.deps.Cgroups.Remove(ctx, t.UID))
	case podstate.RemoveDirectories:
		return Result{}, reason.New("FailedRemoveDirectories", e.removeDirectories(t))
	case podstate.DeleteObject:
		return Result{}, reason.New("FailedDelete", e.deps.Finisher.Finish(ctx, t.Pod))
	}
	return Result{}, reason.New("UnknownAction", fmt.Errorf("nobody knows how to %s", t.Action.Kind))
}

// keepWait is how long a pod that is to end waits at most for its turn to have that
// kept: a disk may hang on another's, and why it has to go does not wait.
const keepWait = time.Second

func (e *Executor) keepStop(parent context.Context, t Task) error {
	if e.deps.Ends == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(parent, keepWait)
	defer cancel()
	return reason.New("FailedKeepStop", e.deps.Ends.Put(ctx, t.UID, *t.Action.Stop))
}

// statusWait is how long the node waits at most for its turn to keep how a pod has ended,
// before what that has left is removed: who asks for the room waits for three times as long.
const statusWait = 10 * time.Second

func (e *Executor) keepStatus(parent context.Context, t Task) error {
	if e.deps.Ends == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(parent, statusWait)
	defer cancel()
	return reason.New("FailedKeepStatus", e.deps.Ends.PutLast(ctx, t.UID, t.Action.Status))
}

// observed makes sure, after a failure that may have had an effect all the
// same, that the pod is looked at before the action counts as done.
func (e *Executor) observed(life context.Context, t Task, do func() error) (err error) {
	defer func() {
		if err != nil {
			e.deps.Observer.RefreshUntilSeen(life, t.UID)
		}
	}()
	defer contain.Panic(life, t.name(), &err)
	return do()
}

// name is what is done of whom.
func (t Task) name() string { return fmt.Sprintf("%s of pod %s", t.Action.Kind, t.UID) }

// told gives a failure without a reason, which has panicked, one, and tells of it: all others
// have theirs.
func (e *Executor) told(t Task, err error) error {
	if err == nil || reason.Of(err) != "" {
		return err
	}
	if t.Pod != nil {
		e.deps.Events.Pod(t.Pod, v1.EventTypeWarning, podstate.ReasonPanicked, err.Error())
	}
	return reason.New(podstate.ReasonPanicked, err)
}

// sawContainer looks at a container after something was done to it, unless an
// event has told already that it came as far as that.
func (e *Executor) sawContainer(ctx context.Context, t Task, id, sandboxID string, least podstate.ContainerState) error {
	if c := e.container(t, id); c != nil && c.State >= least {
		return nil
	}
	return e.deps.Observer.SawContainer(ctx, id, sandboxID)
}

func (e *Executor) pull(ctx context.Context, t Task) (Result, error) {
	r := image.Request{Pod: t.Pod, Early: t.Action.Early, Waits: func(what string) func() {
		ended := timeline.Start(ctx, timeline.PullTurn, "", what)
		return func() { ended(nil) }
	}}
	if v := podutil.ImageVolume(t.Pod, t.Action.Volume); v != nil {
		r.Image, r.Policy = v.Reference, v.PullPolicy
	} else if c, _ := podutil.Container(t.Pod, t.Action.Container); c != nil {
		r.Container, r.Image, r.Policy = c.Name, c.Image, c.ImagePullPolicy
	} else {
		return Result{}, reason.New("ErrImagePull", fmt.Errorf("nothing in the pod's spec has the name %q any more", t.Action.Object))
	}
	var err error
	if r.Sandbox, err = e.deps.Builder.Pull(ctx, t.Pod); err != nil {
		return Result{}, reason.New("ErrImagePull", err)
	}
	ref, err := e.deps.Images.Ensure(ctx, r)
	if err != nil {
		return Result{}, reason.New("ErrImagePull", err)
	}
	return Result{ImageRef: ref}, nil
}

func (e *Executor) setupVolumes(ctx context.Context, t Task) error {
	limited, cancel := context.WithTimeout(ctx, e.cfg.SetupTimeout)
	defer cancel()
	err := e.deps.Volumes.Setup(limited, t.Pod, t.Action.Volumes...)
	if err == nil {
		return nil
	}
	why, rejected := "FailedMount", false
	if failed := (podstate.VolumeErrors)(nil); errors.As(err, &failed) {
		why = failed.EventReason()
		_, rejected = failed.Unattachable() // which has an event of its own
	}
	if ctx.Err() == nil && !rejected {
		e.deps.Events.Pod(t.Pod, v1.EventTypeWarning, why, err.Error())
	}
	return reason.New(why, err)
}
