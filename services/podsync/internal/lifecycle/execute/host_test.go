package execute

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// host stands in for everything that an Executor calls, and keeps a log of it.
type host struct {
	log      []string
	now      podstate.Observed
	fail     map[string][]error // by call, used up one by one
	stopTook time.Duration
	hook     func(context.Context) error
	hooks    map[string][]podstate.Hook
	memory   uint64
	target   string        // of the container made last
	request  image.Request // of the image pulled last
	called   func(name string)
	pid      int
	alive    func() bool
}

func (h *host) call(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	h.log = append(h.log, line)
	name, _, _ := strings.Cut(line, " ")
	if h.called != nil {
		h.called(name)
	}
	if errs := h.fail[name]; len(errs) > 0 {
		h.fail[name] = errs[1:]
		return errs[0]
	}
	return nil
}

func (h *host) RunSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	return "new", h.call("run %d", c.GetMetadata().GetAttempt())
}

func (h *host) StopSandbox(_ context.Context, id string) error   { return h.call("stopsandbox %s", id) }
func (h *host) RemoveSandbox(_ context.Context, id string) error { return h.call("rmsandbox %s", id) }

func (h *host) SandboxProcess(_ context.Context, id string) (pid int, ready bool, err error) {
	err = h.call("pid %s", id)
	return h.pid, h.now.Sandboxes[0].Ready, err
}

func (h *host) CreateContainer(_ context.Context, sb string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	return "made", h.call("create %s/%d in %s", c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), sb)
}

func (h *host) StartContainer(_ context.Context, id string) error  { return h.call("start %s", id) }
func (h *host) RemoveContainer(_ context.Context, id string) error { return h.call("rm %s", id) }

func (h *host) StopContainer(_ context.Context, id string, grace time.Duration) error {
	time.Sleep(h.stopTook)
	err := h.call("stop %s %v", id, grace)
	for i := range h.now.Containers {
		if h.now.Containers[i].ID == id && err == nil {
			h.now.Containers[i].State = podstate.StateExited
		}
	}
	return err
}

func (h *host) UpdateContainer(_ context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	return h.call("update %s shares=%d quota=%d memory=%d", id, r.GetCpuShares(), r.GetCpuQuota(), r.GetMemoryLimitInBytes())
}

func (h *host) UpdateSandbox(_ context.Context, id string, _, _ *runtimeapi.LinuxContainerResources) error {
	return h.call("updatesandbox %s", id)
}

func (h *host) ContainerMemory(_ context.Context, id string) (uint64, error) {
	return h.memory, h.call("memory %s", id)
}

func (h *host) Resized(_ *v1.Pod, _ string, k resources.Kernel) *runtimeapi.LinuxContainerResources {
	return criconfig.Kernel(k)
}

func (h *host) SandboxResources(*v1.Pod) (overhead, containers *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (h *host) Raise(context.Context, *v1.Pod) error { return h.call("raise") }
func (h *host) Fit(context.Context, *v1.Pod) error   { return h.call("fit") }

func (h *host) InEffect(uid types.UID, generation int64) {
	_ = h.call("in effect %s generation=%d", uid, generation)
}

func (h *host) Put(_ context.Context, uid types.UID, e allocation.Entry) error {
	return h.call("keep %s generation=%d", uid, e.Generation)
}

func (h *host) Current(types.UID) podstate.Observed                 { return h.now }
func (h *host) Refresh(context.Context, types.UID) error            { return h.call("refresh") }
func (h *host) RefreshUntilSeen(ctx context.Context, uid types.UID) { _ = h.Refresh(ctx, uid) }
func (h *host) SawContainer(_ context.Context, id, _ string) error  { return h.call("saw %s", id) }
func (h *host) SawSandbox(_ context.Context, id string) error       { return h.call("saw %s", id) }
func (h *host) Gone(id string)                                      { _ = h.call("gone %s", id) }

func (h *host) Ensure(_ context.Context, r image.Request) (string, error) {
	h.request = r
	return "ref", h.call("pull")
}

func (h *host) Setup(context.Context, *v1.Pod, ...string) error { return h.call("setup") }
func (h *host) Teardown(_ context.Context, _ types.UID, namespace string) error {
	return h.call("teardown for %q", namespace)
}
func (h *host) RemovePodDir(types.UID) error            { return h.call("rmdir") }
func (h *host) Remove(context.Context, types.UID) error { return h.call("rmcgroup") }
func (h *host) Finish(context.Context, *v1.Pod) error   { return h.call("finish") }

func (h *host) Pull(_ context.Context, pod *v1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: pod.Namespace}}, nil
}

func (h *host) Sandbox(_ context.Context, _ *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error) {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}}, "", nil
}

func (h *host) Container(_ context.Context, r criconfig.Request) (*runtimeapi.ContainerConfig, error) {
	h.target = r.TargetID
	return &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: r.Container, Attempt: uint32(r.RestartCount)}}, h.call("config")
}

func (h *host) Run(ctx context.Context, _ hook.Target, _ *v1.LifecycleHandler) error {
	_ = h.call("hook")
	return h.hook(ctx)
}

type events struct{ *host }

func (e events) Pod(_ *v1.Pod, _, reason, message string) {
	_ = e.call("event %s %s", reason, message)
}

func (e events) Container(_ *v1.Pod, _, _, reason, message string) {
	_ = e.call("event %s %s", reason, message)
}

func newExecutor(h *host, cfg Config) *Executor {
	h.hooks = map[string][]podstate.Hook{}
	if h.now.Sandboxes == nil {
		h.now.Sandboxes = []podstate.Sandbox{{ID: "sb", Ready: true, IPs: []string{"10.0.0.1"}}}
	}
	places := limiter.New(limiter.Config{})
	return New(cfg, Deps{
		Runtime: h, Observer: h, Images: h, Volumes: h, Cgroups: h, Builder: h, Hooks: h, Finisher: h, Allocations: h, Starts: places, Stops: places,
		Events: events{h}, HostIPs: func() []string { return []string{"192.0.2.1"} },
		ProcessAlive: func(int) bool { return h.alive() },
	})
}

func testPod() *v1.Pod {
	grace := int64(10)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{Name: "c"}}},
	}
}

func (h *host) task(a podstate.Action) Task {
	return Task{Pod: testPod(), UID: "u", Action: a, Hooked: func(id string, k podstate.Hook) { h.hooks[id] = append(h.hooks[id], k) }}
}

var startC = podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "c"}, Container: "c", SandboxID: "sb", Attempt: 1, CheckSandbox: true, ImageRef: "ref"}

func calls(log []string) []string {
	return slices.DeleteFunc(slices.Clone(log), func(l string) bool { return strings.HasPrefix(l, "event") || l == "config" })
}
