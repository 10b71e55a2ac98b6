package execute

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

func TestNothingRunsWithoutTheDevicesThatItHasClaimed(t *testing.T) {
	name := "p-gpu-x"
	mine := func(status ...v1.PodResourceClaimStatus) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
			pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu", Request: "a"}, {Name: "gpu", Request: "b"}}
			pod.Status.ResourceClaimStatuses = status
		}
	}
	extended := func(container string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
				ResourceClaimName: name, RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: container, ResourceName: "example.com/gpu"}},
			}
		}
	}
	const refused = "this node has no dynamic resource allocation yet"
	for text, c := range map[string]struct {
		edit               func(*v1.Pod)
		sandbox, container string // what is refused, and the name in it; empty when it is not
	}{
		"no claim":                             {func(*v1.Pod) {}, "", ""},
		"a claim":                              {mine(v1.PodResourceClaimStatus{Name: "gpu", ResourceClaimName: &name}), "resource claims gpu: ", "resource claims gpu: "},
		"a claim that is not made yet":         {mine(), "resource claims gpu: ", "resource claims gpu: "},
		"a template that needs none":           {mine(v1.PodResourceClaimStatus{Name: "gpu"}), "", ""},
		"a claim of the pod, not this one's":   {func(pod *v1.Pod) { mine()(pod); pod.Spec.Containers[0].Resources.Claims = nil }, "resource claims gpu: ", ""},
		"an extended resource that is a claim": {extended("c"), "resource claims " + name + ": ", "resource claims " + name + ": "},
		"one of another container":             {extended("other"), "resource claims " + name + ": ", ""},
	} {
		t.Run(text, func(t *testing.T) {
			for _, try := range []struct {
				action             podstate.Action
				want, call, reason string
				event              string
			}{
				{podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}, Attempt: 1}, c.sandbox, "run 1", "FailedPrepareDynamicResources", "event FailedPrepareDynamicResources Failed to prepare dynamic resources: "},
				{startC, c.container, "start made", "CreateContainerConfigError", "event Failed Error: "},
			} {
				h := &host{}
				task := h.task(try.action)
				task.Pod = task.Pod.DeepCopy()
				c.edit(task.Pod)
				_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
				if try.want == "" {
					if err != nil || !slices.Contains(h.log, try.call) {
						t.Errorf("%s: error %v, calls %q", try.action.Kind, err, h.log)
					}
					continue
				}
				said := slices.ContainsFunc(h.log, func(l string) bool { return strings.HasPrefix(l, try.event+try.want+refused) })
				if err == nil || reason.Of(err) != try.reason || !said || slices.Contains(h.log, try.call) {
					t.Errorf("%s: error %v (%s), calls %q", try.action.Kind, err, reason.Of(err), h.log)
				}
			}
		})
	}
}
