package resources

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

func TestSharesAndQuota(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, 1: 2, -5: 2, 100: 102, 1000: 1024, 1_000_000: 262144} {
		if got := Shares(milli); got != want {
			t.Errorf("Shares(%d) = %d, want %d", milli, got, want)
		}
	}
	for _, c := range []struct {
		milli  int64
		period uint64
		want   int64
	}{{0, 0, 0}, {100, 0, 10_000}, {1, 0, 1000}, {1500, 50_000, 75_000}} {
		if got := Quota(c.milli, c.period); got != c.want {
			t.Errorf("Quota(%d, %d) = %d, want %d", c.milli, c.period, got, c.want)
		}
	}
}

func TestPageSizesAreNamedAsTheKernelDoes(t *testing.T) {
	for name, want := range map[v1.ResourceName]string{"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB"} {
		if got, err := PageSize(name); err != nil || got != want {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
	for _, bad := range []v1.ResourceName{"memory", "hugepages-x"} {
		if got, err := PageSize(bad); err == nil {
			t.Errorf("%s = %q", bad, got)
		}
	}
}

func TestOOMScores(t *testing.T) {
	const gi = int64(1) << 30
	full := list("cpu", "1", "memory", "1Gi")
	for _, c := range []struct {
		name string
		pod  v1.Pod
		want int64
	}{
		{"best effort", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", nil, nil)}}}, 1000},
		{"guaranteed", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", full, full)}}}, -997},
		{"burstable", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("memory", "1Gi"), nil)}}}, 750},
		{"burstable with all memory", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("memory", "4Gi"), nil)}}}, 3},
		{"burstable without memory", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1"), nil)}}}, 999},
		{"node critical", v1.Pod{Spec: v1.PodSpec{
			Priority: ptr.To[int32](2_000_001_000), PriorityClassName: nodeCritical, Containers: []v1.Container{container("c", nil, nil)},
		}}, -997},
		{"static but not of that class", v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podutil.AnnotationSource: "file"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{container("c", nil, nil)}},
		}, 1000},
		{"pod's own request shared", v1.Pod{Spec: v1.PodSpec{
			Resources:  &v1.ResourceRequirements{Requests: list("memory", "2Gi")},
			Containers: []v1.Container{container("c", nil, nil), container("d", nil, nil)},
		}}, 750},
	} {
		if got := OOMScoreAdj(&c.pod, &c.pod.Spec.Containers[0], 4*gi); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{sidecar(container("s", list("memory", "100Mi"), nil))},
		Containers:     []v1.Container{container("c", list("memory", "1Gi"), nil)},
	}}
	if got := OOMScoreAdj(pod, &pod.Spec.InitContainers[0], 4*gi); got != 750 {
		t.Errorf("a sidecar has %d, more than the container it serves", got)
	}
	// One that takes more than it asked for goes before the container that does not.
	pod.Spec.Containers = append(pod.Spec.Containers, container("small", list("memory", "200Mi"), nil))
	if got, least := OOMScoreAdj(pod, &pod.Spec.InitContainers[0], 4*gi), OOMScoreAdj(pod, &pod.Spec.Containers[1], 4*gi); got != least || least != 952 {
		t.Errorf("a sidecar has %d, and the container that asks for least %d", got, least)
	}
	initialized := &v1.Pod{Spec: v1.PodSpec{
		Resources:      &v1.ResourceRequirements{Requests: list("memory", "2Gi")},
		InitContainers: []v1.Container{container("i", nil, nil)},
		Containers:     []v1.Container{container("c", nil, nil)},
	}}
	if got := OOMScoreAdj(initialized, &initialized.Spec.Containers[0], 4*gi); got != 750 {
		t.Errorf("an init container has no part of the pod's own request: %d", got)
	}
	if got := OOMScoreAdj(pod, &pod.Spec.Containers[0], 0); got != 999 {
		t.Errorf("with the capacity not known: %d", got)
	}
}

func TestAPodsTotal(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			container("big", list("cpu", "4", "memory", "64Mi"), nil),
			sidecar(container("side", list("cpu", "100m", "memory", "1Gi"), nil)),
			container("after", list("memory", "3Gi"), nil),
		},
		Containers: []v1.Container{
			container("a", list("cpu", "1", "memory", "1Gi"), list("hugepages-2Mi", "4Mi")),
			container("b", nil, list("cpu", "500m", "memory", "512Mi", "hugepages-2Mi", "2Mi")),
		},
		Overhead: list("cpu", "50m", "memory", "10Mi"),
	}}
	got := ForPod(pod)
	if got.MilliCPU != 4050 || got.MemoryBytes != 4<<30+10<<20 || got.CPULimit != 0 || got.MemoryLimit != 0 {
		t.Errorf("total = %+v", got)
	}
	if !maps.Equal(got.HugePages, map[string]int64{"2MB": 6 << 20}) {
		t.Errorf("huge pages = %v", got.HugePages)
	}
	limited := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		container("a", nil, list("cpu", "1", "memory", "1Gi")), container("b", nil, list("cpu", "500m", "memory", "512Mi")),
	}}}
	if got := ForPod(limited); got.CPULimit != 1500 || got.MilliCPU != 1500 || got.MemoryLimit != 1536<<20 {
		t.Errorf("all limited: %+v", got)
	}
	limited.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "700m"), Requests: list("cpu", "200m", "memory", "1Gi")}
	if got := ForPod(limited); got.CPULimit != 700 || got.MilliCPU != 200 || got.MemoryBytes != 1<<30 || got.MemoryLimit != 1536<<20 {
		t.Errorf("with the pod's own: %+v", got)
	}
}

func TestAContainerHasTheHugePagesOfItsPodWhereItHasNoneOfItsOwn(t *testing.T) {
	amount := func(name, q string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceName(name): resource.MustParse(q)}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{Limits: amount("hugepages-2Mi", "64Mi")},
		Containers: []v1.Container{
			{Name: "none"}, {Name: "own", Resources: v1.ResourceRequirements{Limits: amount("hugepages-2Mi", "8Mi")}},
			{Name: "others", Resources: v1.ResourceRequirements{Limits: amount("hugepages-1Gi", "1Gi")}},
		},
	}}
	for i, want := range []map[string]uint64{{"2MB": 64 << 20}, {"2MB": 8 << 20}, {"2MB": 64 << 20, "1GB": 1 << 30}} {
		if got := HugePages(pod, &pod.Spec.Containers[i]); !maps.Equal(got, want) {
			t.Errorf("container %s: %v, want %v", pod.Spec.Containers[i].Name, got, want)
		}
	}
	pod.Spec.Resources = nil
	if got := HugePages(pod, &pod.Spec.Containers[0]); len(got) != 0 {
		t.Errorf("without any: %v", got)
	}
}
