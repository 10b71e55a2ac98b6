package execute

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
)

const (
	reasonConfig    = "CreateContainerConfigError"
	reasonCreate    = "CreateContainerError"
	reasonRun       = "RunContainerError"
	reasonPostStart = "PostStartHookError"
	reasonKill      = "KillContainerError"
)

// startContainer makes, starts and hooks a container. Whatever of this name
// still lives or was left half made is dealt with first, so that there are
// never two.
func (e *Executor) startContainer(life, ctx context.Context, t Task) error {
	c, _ := podutil.Container(t.Pod, t.Action.Container)
	if c == nil {
		return reason.New(reasonConfig, fmt.Errorf("container %q is not in the pod's spec", t.Action.Container))
	}
	if settled, err := e.clear(ctx, t); settled || err != nil {
		return err
	}
	if err := e.lacksDevices(t.Pod, c); err != nil {
		return e.startFailed(ctx, t, reasonConfig, err)
	}
	defer endsHook(&t)()
	id, ip, unseen := e.createAndStart(ctx, t, c)
	if id == "" {
		return unseen
	}
	e.linkLog(life, t.Pod, c.Name, id, t.Action.Attempt)
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return unseen
	}
	ended := timeline.Start(ctx, timeline.PostStart, c.Name, hookKind(c.Lifecycle.PostStart))
	err := e.deps.Hooks.Run(ctx, hook.Target{Pod: t.Pod, Container: c, ContainerID: id, PodIP: ip}, c.Lifecycle.PostStart)
	ended(err)
	if err == nil || ctx.Err() != nil {
		t.Hooked(id, podstate.HookDone)
		return unseen
	}
	e.deps.Events.Container(t.Pod, c.Name, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	t.Hooked(id, podstate.HookFailed)
	return reason.New(reasonPostStart, fmt.Errorf("postStart hook: %w", err))
}

// endsHook returns what ends a hook that is told to run and, after a panic, is told nothing else:
// its container would be neither started nor ended ever after.
func endsHook(t *Task) func() {
	told, running := t.Hooked, ""
	t.Hooked = func(id string, h podstate.Hook) {
		if running = ""; h == podstate.HookRunning {
			running = id
		}
		told(id, h)
	}
	return func() {
		if running != "" {
			told(running, podstate.HookFailed)
		}
	}
}

// clear removes what an earlier start left half made, and says whether there is nothing
// to start. What the runtime refuses to remove is told as podstate.Unremovable.
func (e *Executor) clear(ctx context.Context, t Task) (settled bool, err error) {
	halfMade, settled := t.Action.Finds(e.deps.Observer.Current(t.UID))
	for _, id := range halfMade {
		err := e.deps.Runtime.RemoveContainer(ctx, id)
		if cri.IsRefused(err) {
			err = podstate.Unremovable{ID: id, Err: err}
		}
		if err != nil {
			return false, reason.New(reasonCreate, fmt.Errorf("remove container %s, which was made but never started: %w", id, err))
		}
		e.deps.Observer.Gone(id)
	}
	return settled, nil
}

// createAndStart makes and starts the container within a place among the
// parallel starts. An empty id without an error means that an earlier call,
// whose answer was lost, has done it, or that the sandbox has gone down, which
// is observed; an id with an error that the container runs, but could not be
// looked at.
func (e *Executor) createAndStart(ctx context.Context, t Task, c *v1.Container) (id, ip string, err error) {
	if t.Action.CheckSandbox && e.sandboxGoes(ctx, t) {
		return "", "", nil // there is nothing to start it in
	}
	config, sandboxConfig, ip, err := e.containerConfig(ctx, t, c)
	if err != nil {
		return "", "", err
	}
	release, err := e.deps.Starts.Acquire(ctx, t.Order)
	if err != nil {
		return "", "", reason.New(reasonCreate, err)
	}
	defer release()
	id, err = e.deps.Runtime.CreateContainer(ctx, t.Action.SandboxID, config, sandboxConfig)
	e.metrics.mounted(len(t.Action.VolumeRefs), err)
	if cri.IsNameTaken(err) {
		return "", "", e.adoptContainer(ctx, t, err)
	}
	if err != nil {
		return "", "", e.notStarted(ctx, t, "", reasonCreate, err)
	}
	e.deps.Events.Container(t.Pod, c.Name, v1.EventTypeNormal, "Created", "Container created")
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		t.Hooked(id, podstate.HookRunning)
	}
	if err := e.start(ctx, t, id); err != nil {
		t.Hooked(id, podstate.HookDone)
		return "", "", e.notStarted(ctx, t, id, reasonRun, err)
	}
	e.deps.Events.Container(t.Pod, c.Name, v1.EventTypeNormal, "Started", "Container started")
	if err := e.sawContainer(ctx, t, id, t.Action.SandboxID, podstate.StateRunning); err != nil {
		return id, ip, reason.New(reasonRun, err)
	}
	return id, ip, nil
}

// start starts what was made. That took a while, in which a sandbox on its way out has
// gone on.
func (e *Executor) start(ctx context.Context, t Task, id string) error {
	if !t.Action.SandboxUntil.IsZero() && e.sandboxGoes(ctx, t) {
		return errSandboxGoes
	}
	return e.deps.Runtime.StartContainer(ctx, id)
}

// containerConfig is what the runtime needs to make a container, with the address of the
// pod, which its postStart hook may need.
func (e *Executor) containerConfig(ctx context.Context, t Task, c *v1.Container) (config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig, ip string, err error) {
	sandbox, sandboxConfig, err := e.sandboxOf(ctx, t.Pod, t.Action.SandboxID)
	if err != nil {
		return nil, nil, "", reason.New(reasonCreate, err)
	}
	ips := podutil.ShownIPs(sandbox.IPs, e.deps.HostIPs())
	if sandbox.HostNetwork || t.Pod.Spec.HostNetwork {
		ips = e.deps.HostIPs()
	}
	if len(ips) > 0 {
		ip = ips[0]
	}
	target, err := e.targetOf(t)
	if err != nil {
		return nil, nil, "", e.startFailed(ctx, t, reasonConfig, err)
	}
	config, err = e.deps.Builder.Container(ctx, criconfig.Request{
		Pod: t.Pod, Container: c.Name, RestartCount: t.Action.Attempt, ImageRef: t.Action.ImageRef, VolumeRefs: t.Action.VolumeRefs,
		PodIPs: ips, Backoff: t.Action.Backoff, Round: t.Action.Round, TargetID: target,
	})
	if err != nil {
		return nil, nil, "", e.startFailed(ctx, t, reasonConfig, err)
	}
	return config, sandboxConfig, ip, nil
}

// targetOf finds the container whose process namespace an ephemeral container
// joins; empty for any other, and where it sees the target's processes anyway.
func (e *Executor) targetOf(t Task) (string, error) {
	if t.Pod.Spec.HostPID || t.Pod.Spec.ShareProcessNamespace != nil && *t.Pod.Spec.ShareProcessNamespace {
		return "", nil
	}
	name := ""
	for i := range t.Pod.Spec.EphemeralContainers {
		if c := &t.Pod.Spec.EphemeralContainers[i]; c.Name == t.Action.Container {
			name = c.TargetContainerName
		}
	}
	if name == "" {
		return "", nil
	}
	for _, c := range e.deps.Observer.Current(t.UID).Containers {
		if c.Name == name && c.State == podstate.StateRunning {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("unable to find target container %v: it does not run", name)
}

// adoptContainer deals with a name that is taken: an earlier call of this
// attempt lost its answer. What it made is found by looking; a container that
// was made but not started is removed at the next try.
func (e *Executor) adoptContainer(ctx context.Context, t Task, cause error) error {
	if err := e.deps.Observer.Refresh(ctx, t.UID); err != nil {
		return reason.New(reasonCreate, err)
	}
	if t.Action.Made(e.deps.Observer.Current(t.UID)) {
		return nil
	}
	return reason.New(reasonCreate, fmt.Errorf("the runtime is still making this container: %w", cause))
}

// notStarted is for what the runtime did not make or start: a failure, unless what is
// found makes something else of it. What was made for it has this id, which may be empty.
func (e *Executor) notStarted(ctx context.Context, t Task, id, word string, err error) error {
	found := podstate.NotStarted{SandboxDown: ctx.Err() == nil && e.sandboxDown(ctx, t)}
	if found.SandboxDown && id != "" {
		found.Unseen = e.deps.Observer.SawContainer(ctx, id, t.Action.SandboxID) != nil
	}
	found.Made = e.container(t, id)
	if found.Counts() == podstate.NoStart && id != "" {
		if found.Stays = e.deps.Runtime.RemoveContainer(ctx, id) != nil; !found.Stays {
			e.deps.Observer.Gone(id)
		}
	}
	switch found.Counts() {
	case podstate.StartFailed:
		return e.startFailed(ctx, t, word, err)
	case podstate.NoStart:
		klog.FromContext(ctx).V(1).Info("A container was not started, for its sandbox went down", "container", t.Action.Container, "sandbox", t.Action.SandboxID, "err", err.Error())
	case podstate.StartRan:
	}
	return nil
}

// container is what is observed of a container of the task's pod; nil when nothing is.
func (e *Executor) container(t Task, id string) *podstate.Container {
	o := e.deps.Observer.Current(t.UID)
	return o.Container(id)
}

// sandbox is the same of a sandbox.
func (e *Executor) sandbox(t Task, id string) *podstate.Sandbox {
	o := e.deps.Observer.Current(t.UID)
	return o.Sandbox(id)
}

// startFailed tells of a start that failed, in the runtime's own words: its gRPC
// code tells users nothing.
func (e *Executor) startFailed(ctx context.Context, t Task, word string, err error) error {
	err = plainly{err}
	if ctx.Err() == nil {
		e.deps.Events.Container(t.Pod, t.Action.Container, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
	}
	return reason.New(word, err)
}

// plainly is an error of the runtime without its gRPC code.
type plainly struct{ error }

// Error implements error.
func (p plainly) Error() string { return cri.Message(p.error) }

// Unwrap returns the whole of it.
func (p plainly) Unwrap() error { return p.error }

func (e *Executor) sandboxIDOf(t Task, id string) string {
	if c := e.container(t, id); c != nil {
		return c.SandboxID
	}
	return ""
}
