package execute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/labels"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/security"
)

// reasonPrepare is of a pod whose devices are not ready for it.
const reasonPrepare = "FailedPrepareDynamicResources"

func (e *Executor) makeSandbox(ctx context.Context, t Task) error {
	attempt := uint32(t.Action.Attempt)
	if attempt > 0 {
		e.deps.Events.Pod(t.Pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := unprepared(t.Pod); err != nil {
		return e.sandboxFailed(ctx, t, reasonPrepare, err)
	}
	config, handler, err := e.sandboxConfig(ctx, t.Pod, attempt, t.Action.PodStarted)
	if err != nil {
		return e.sandboxFailed(ctx, t, "ConfigPodSandboxError", err)
	}
	if err := e.ensureCgroup(ctx, t.Pod); err != nil {
		return e.sandboxFailed(ctx, t, "ConfigPodSandboxError", err)
	}
	release, err := e.deps.Starts.Acquire(ctx, t.Order)
	if err != nil {
		return reason.New("CreatePodSandboxError", err)
	}
	defer release()
	if text := labels.LeftOut(t.Pod); text != "" {
		e.deps.Events.Pod(t.Pod, v1.EventTypeWarning, "SandboxMetadataLeftOut", text)
	}
	id, err := e.deps.Runtime.RunSandbox(ctx, config, handler)
	if cri.IsNameTaken(err) {
		return e.adoptSandbox(ctx, t, err)
	}
	if err != nil {
		return e.sandboxFailed(ctx, t, "CreatePodSandboxError", err)
	}
	// An event may have told already that it is up.
	if s := e.sandbox(t, id); s.Up() {
		return nil
	}
	if err := e.deps.Observer.SawSandbox(ctx, id); err != nil {
		return reason.New("CreatePodSandboxError", err)
	}
	return nil
}

// ensureCgroup makes the cgroup of a pod whose sandbox is about to be made, and only then:
// in a pod that runs, a resize may be under way that has not let go yet of what is in use.
func (e *Executor) ensureCgroup(ctx context.Context, pod *v1.Pod) error {
	if e.deps.EnsureCgroup == nil {
		return nil
	}
	if _, err := e.deps.EnsureCgroup(ctx, pod); err != nil {
		return fmt.Errorf("%w: %w", criconfig.ErrCgroup, err)
	}
	return nil
}

// adoptSandbox deals with a sandbox of this attempt that exists or is being
// made: an earlier call's answer was lost. When it is there, it is what the
// action was to make; when it is not yet, the runtime is still at it.
func (e *Executor) adoptSandbox(ctx context.Context, t Task, cause error) error {
	if err := e.deps.Observer.Refresh(ctx, t.UID); err != nil {
		return reason.New("CreatePodSandboxError", err)
	}
	if t.Action.Made(e.deps.Observer.Current(t.UID)) {
		return nil
	}
	return reason.New("CreatePodSandboxError", fmt.Errorf("the runtime is still making this sandbox: %w", cause))
}

func (e *Executor) sandboxFailed(ctx context.Context, t Task, word string, err error) error {
	if ctx.Err() == nil {
		event, message := "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error()
		switch {
		case errors.Is(err, criconfig.ErrCgroup):
			event, message = "FailedCreatePodContainer", err.Error()
		case errors.Is(err, errNoDRA):
			event, message = reasonPrepare, "Failed to prepare dynamic resources: "+err.Error()
		}
		e.deps.Events.Pod(t.Pod, v1.EventTypeWarning, event, message)
	}
	return reason.New(word, err)
}

// sandboxConfig builds and keeps the configuration of the pod's sandbox.
func (e *Executor) sandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32, started time.Time) (*runtimeapi.PodSandboxConfig, string, error) {
	config, handler, err := e.deps.Builder.Sandbox(ctx, pod, attempt)
	if err != nil {
		return nil, "", err
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	if !started.IsZero() {
		config.Annotations[cri.AnnotationPodStarted] = started.UTC().Format(time.RFC3339)
	}
	if parent := config.GetLinux().GetCgroupParent(); parent != "" {
		config.Annotations[cri.AnnotationCgroupParent] = parent
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sandboxes[pod.UID] = madeSandbox{attempt: attempt, config: config}
	return config, handler, nil
}

// sandboxOf finds a sandbox and its configuration for the pod as it is now; it is
// built anew when an earlier process made the sandbox.
func (e *Executor) sandboxOf(ctx context.Context, pod *v1.Pod, id string) (*podstate.Sandbox, *runtimeapi.PodSandboxConfig, error) {
	o := e.deps.Observer.Current(pod.UID)
	s := o.Sandbox(id)
	if s == nil {
		return nil, nil, fmt.Errorf("sandbox %s is gone", id)
	}
	e.mu.Lock()
	made, ok := e.sandboxes[pod.UID]
	e.mu.Unlock()
	if ok && made.attempt == s.Attempt {
		return s, privileged(made.config, pod), nil
	}
	config, _, err := e.sandboxConfig(ctx, pod, s.Attempt, s.PodStarted)
	return s, config, err
}

// privileged is the configuration of a sandbox that may hold the pod's privileged
// containers: one for debugging may have been added since it was made.
func privileged(config *runtimeapi.PodSandboxConfig, pod *v1.Pod) *runtimeapi.PodSandboxConfig {
	if sc := config.GetLinux().GetSecurityContext(); sc == nil || sc.Privileged || !security.AnyPrivileged(pod) {
		return config
	}
	config, _ = proto.Clone(config).(*runtimeapi.PodSandboxConfig) // it is of that type
	config.Linux.SecurityContext.Privileged = true
	return config
}

// sandboxDown asks the runtime whether the sandbox of a start is down, and lets
// it be observed. A runtime that does not answer says no.
func (e *Executor) sandboxDown(ctx context.Context, t Task) bool {
	if err := e.deps.Observer.SawSandbox(ctx, t.Action.SandboxID); err != nil {
		return false
	}
	s := e.sandbox(t, t.Action.SandboxID)
	return s == nil || !s.Ready
}

var errSandboxGoes = errors.New("its sandbox went down")

// sandboxGoes says whether the sandbox of a start is down or on its way out, as the
// action's own check has it.
func (e *Executor) sandboxGoes(ctx context.Context, t Task) bool {
	var seen podstate.SandboxSeen
	for {
		seen.At = time.Now()
		switch t.Action.CheckOf(seen) {
		case podstate.SandboxGoes:
			return true
		case podstate.SandboxStands:
			return false
		case podstate.AskProcess:
			seen.Process = e.sandboxProcess(ctx, t)
			continue
		case podstate.AskAgain:
			select {
			case <-ctx.Done():
				return false
			case <-time.After(sandboxAsked):
			}
		case podstate.AskRuntime:
		}
		seen.Asked, seen.Down = true, e.sandboxDown(ctx, t)
	}
}

// sandboxProcess asks for the process of the sandbox of a start.
func (e *Executor) sandboxProcess(ctx context.Context, t Task) podstate.Process {
	pid, ready, err := e.deps.Runtime.SandboxProcess(ctx, t.Action.SandboxID)
	switch {
	case err != nil || !ready:
		return podstate.ProcessNotKnown
	case pid <= 0 || e.deps.ProcessAlive(pid):
		return podstate.ProcessAlive
	}
	return podstate.ProcessDead
}

// sandboxAsked is how often a runtime is asked whether a sandbox whose process
// is dead is down.
const sandboxAsked = 20 * time.Millisecond

// processAlive says whether a process runs: one that has ended and was not
// reaped does not.
func processAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which may hold anything, and a space.
	end := bytes.LastIndexByte(stat, ')')
	return end >= 0 && end+2 < len(stat) && stat[end+2] != 'Z' && stat[end+2] != 'X'
}

func (e *Executor) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sandboxes, uid)
}

func (e *Executor) stopSandbox(ctx context.Context, t Task) error {
	release, err := e.deps.Stops.Acquire(ctx, t.Order)
	if err != nil {
		return reason.New("KillPodSandboxError", err)
	}
	defer release()
	if err := e.deps.Runtime.StopSandbox(ctx, t.Action.ID); err != nil {
		return e.killFailed(ctx, t, "KillPodSandboxError", err)
	}
	// An event may have told already that it is down.
	if e.sandboxReady(t) {
		if err := e.deps.Observer.SawSandbox(ctx, t.Action.ID); err != nil {
			return reason.New("KillPodSandboxError", err)
		}
	}
	if e.sandboxReady(t) {
		return reason.New("KillPodSandboxError", fmt.Errorf("the runtime says that sandbox %s was stopped, but it is ready", t.Action.ID))
	}
	return e.seeContainersOf(ctx, t)
}

func (e *Executor) sandboxReady(t Task) bool {
	s := e.sandbox(t, t.Action.ID)
	return s != nil && s.Ready
}

// seeContainersOf looks at the containers that ended with their sandbox.
func (e *Executor) seeContainersOf(ctx context.Context, t Task) error {
	for _, c := range e.deps.Observer.Current(t.UID).Containers {
		if c.SandboxID == t.Action.ID && c.State != podstate.StateExited {
			if err := e.deps.Observer.SawContainer(ctx, c.ID, c.SandboxID); err != nil {
				return reason.New("KillPodSandboxError", err)
			}
		}
	}
	return nil
}

func (e *Executor) removeSandbox(ctx context.Context, t Task) error {
	release, err := e.deps.Stops.Acquire(ctx, last())
	if err != nil {
		return reason.New("FailedRemoveSandbox", err)
	}
	defer release()
	if err := e.deps.Runtime.RemoveSandbox(ctx, t.Action.ID); err != nil {
		return reason.New("FailedRemoveSandbox", err)
	}
	e.deps.Observer.Gone(t.Action.ID)
	return nil
}
