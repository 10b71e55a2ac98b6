package execute

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/security"
)

// strictHost makes configurations as the builder does and refuses as containerd does.
type strictHost struct {
	*host
	refused bool
}

func (h *strictHost) Sandbox(_ context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error) {
	p := pod.DeepCopy()
	for _, e := range p.Spec.EphemeralContainers { // as if anyPrivileged were right
		p.Spec.Containers = append(p.Spec.Containers, v1.Container(e.EphemeralContainerCommon))
	}
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: security.Sandbox(p)}}, "", nil
}

func (h *strictHost) CreateContainer(ctx context.Context, sb string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	h.refused = !s.GetLinux().GetSecurityContext().GetPrivileged()
	return h.host.CreateContainer(ctx, sb, c, s)
}

func TestAPrivilegedDebugContainerIsMadeWithAPrivilegedSandboxConfig(t *testing.T) {
	h := &strictHost{host: &host{}}
	e := newExecutor(h.host, Config{})
	e.deps.Builder = struct {
		*host
		*strictHost
	}{nil, h}.strictHost
	e.deps.Runtime = h
	task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}})
	if _, err := e.Do(t.Context(), t.Context(), task); err != nil {
		t.Fatal(err)
	}
	task = h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "debug"}, Container: "debug", SandboxID: "sb"})
	task.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", SecurityContext: &v1.SecurityContext{Privileged: ptr.To(true)}}}}
	if _, err := e.Do(t.Context(), t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if h.refused {
		t.Error("the sandbox's configuration is that of before the debug container was added: containerd refuses")
	}
}
