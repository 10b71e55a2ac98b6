package eviction

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// resized is a pod that asks for memory by a resize that waits.
func resized(name, allocated, asked string) *v1.Pod {
	p := pod(name, 0, asks("memory", asked))
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: &v1.ResourceRequirements{}, AllocatedResources: asks("memory", allocated)}}
	return p
}

func TestAPodIsNotSparedForMemoryThatItAsksForByAResizeThatWaits(t *testing.T) {
	greedy := resized("greedy", "10Mi", "100Gi")
	modest := pod("modest", 0, asks("memory", "50Mi"))
	f := figures(stats("greedy", 900*mi, 0, 0, 0, nil), stats("modest", 60*mi, 0, 0, 0, nil))
	all := Rank(pressure.Signal{Name: "memory.available", Capacity: 8 << 30}, threshold.Layout{}, []*v1.Pod{modest, greedy}, f, nil)
	if got := ranked(all); !slices.Equal(got, []string{"greedy", "modest"}) || !all[0].Exceeds || all[0].Request != 10*mi {
		t.Errorf("%v, %+v", got, all[0])
	}
	message, _ := Message(met("memory.available", "100Mi", 0, 50*mi, 8<<30), all[0].Pod, f["greedy"])
	if !strings.Contains(message, "Container c was using 900Mi, request is 10Mi, ") {
		t.Errorf("%s", message)
	}
}

func TestWhatAPodAsksForIsWhatItWasAllocated(t *testing.T) {
	added := resized("added", "1Mi", "2Mi") // It had no request before.
	added.Status.ContainerStatuses[0].AllocatedResources = nil
	before := pod("not made yet", 0, asks("memory", "2Mi"))
	before.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c"}}
	whole := pod("whole", 0, nil)
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: asks("memory", "9Gi")}
	whole.Spec.Overhead, whole.Status.AllocatedResources = asks("memory", "3Mi"), asks("memory", "8Mi")
	sidecar := pod("sidecar", 0, asks("memory", "1Mi"))
	always := v1.ContainerRestartPolicyAlways
	sidecar.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: asks("memory", "9Gi")}}}
	sidecar.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "s", Resources: &v1.ResourceRequirements{}, AllocatedResources: asks("memory", "6Mi")}}
	for _, test := range []struct {
		pod  *v1.Pod
		want string
	}{
		{resized("less", "10Mi", "5Mi"), "10Mi"},
		{resized("alike", "10Mi", "10Mi"), "10Mi"},
		{added, "0"},
		{before, "2Mi"},
		{whole, "8Mi"},
		{sidecar, "7Mi"},
	} {
		spec := test.pod.Spec.DeepCopy()
		want := resource.MustParse(test.want)
		if got := request(Allocated(test.pod), v1.ResourceMemory); got != want.Value() {
			t.Errorf("%s: %d, want %s", test.pod.Name, got, test.want)
		}
		if !slices.EqualFunc(spec.Containers, test.pod.Spec.Containers, func(a, b v1.Container) bool {
			return a.Resources.Requests.Memory().Cmp(*b.Resources.Requests.Memory()) == 0
		}) {
			t.Errorf("%s: its spec was changed", test.pod.Name)
		}
	}
	if p := resized("alike", "10Mi", "10Mi"); Allocated(p) != p {
		t.Error("one that has what it asks for is copied")
	}
}
