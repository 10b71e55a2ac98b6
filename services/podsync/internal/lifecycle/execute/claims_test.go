package execute

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

func TestNoContainerOfADevicePluginsResourceRunsWithoutIt(t *testing.T) {
	for name, c := range map[string]struct {
		asks v1.ResourceName
		many string
		err  error
		want string // what is said of it; empty when it starts
	}{
		"a device plugin's":             {"example.com/gpu", "1", nil, "devices of example.com/gpu: they were a device plugin's"},
		"none of a device plugin's":     {"example.com/gpu", "0", errors.New("nobody is to be asked"), ""},
		"one that is counted alone":     {"example.com/dongle", "1", nil, ""},
		"Kubernetes' own":               {v1.ResourceMemory, "1", errors.New("nobody is to be asked"), ""},
		"and when that cannot be found": {"example.com/dongle", "1", errors.New("damaged"), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{}
			task := h.task(startC)
			task.Pod = task.Pod.DeepCopy()
			task.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{c.asks: resource.MustParse(c.many)}
			e := newExecutor(h, Config{})
			e.deps.PluginHas = func(name v1.ResourceName) (bool, error) { return name == "example.com/gpu", c.err }
			_, err := e.Do(t.Context(), t.Context(), task)
			said := slices.ContainsFunc(h.log, func(l string) bool { return strings.HasPrefix(l, "event Failed Error: "+c.want) })
			if started := slices.Contains(h.log, "start made"); started != (c.want == "") || (err != nil) == started || said == started {
				t.Errorf("error %v, calls %q", err, h.log)
			}
		})
	}
}
