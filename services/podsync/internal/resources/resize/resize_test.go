package resize

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// pod has a container c with these requests, and a limit of twice the memory
// when the class is Guaranteed the requests are the limits.
func pod(uid string, class v1.PodQOSClass, requests v1.ResourceList, edit ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Status: v1.PodStatus{QOSClass: class},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}}},
	}
	if class == v1.PodQOSGuaranteed {
		p.Spec.Containers[0].Resources.Limits = requests.DeepCopy()
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func level(requests v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: requests} }
}

func withInit(policy *v1.ContainerRestartPolicy, requests v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i", RestartPolicy: policy, Resources: v1.ResourceRequirements{Requests: requests}}}
	}
}

func TestAnAllocationIsWhatAPodHasInPlaceOfWhatItsSpecAsks(t *testing.T) {
	old := pod("p", v1.PodQOSBurstable, list("cpu", "1", "memory", "1Gi", "example.com/x", "1"))
	allocated := Of(old)
	text, err := allocated.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, ok := Decode(text)
	if !ok || !read.Equal(allocated) {
		t.Fatalf("read back %+v from %s", read, text)
	}
	if got := read.Apply(old); got != old {
		t.Error("a pod that has what it asks for was copied")
	}
	desired := pod("p", v1.PodQOSBurstable, list("cpu", "2", "example.com/x", "1"), level(list("cpu", "3")))
	got := read.Apply(desired)
	if want := old.Spec.Containers[0].Resources.Requests; !Of(got).Equal(allocated) || len(got.Spec.Containers[0].Resources.Requests) != len(want) || got.Spec.Resources != nil {
		t.Errorf("applied: %+v, %+v", got.Spec.Containers[0].Resources, got.Spec.Resources)
	}
	if desired.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 {
		t.Error("the desired pod was changed")
	}
	if back := Of(desired).Apply(got); !Of(back).Equal(Of(desired)) {
		t.Errorf("the other way: %+v", back.Spec)
	}
}

func TestAmountsAreEqualHoweverTheyAreWritten(t *testing.T) {
	a, b := Of(pod("p", "", list("cpu", "1000m", "memory", "1Gi"))), Of(pod("p", "", list("cpu", "1", "memory", "1024Mi")))
	if !a.Equal(b) {
		t.Error("1 is not 1000m")
	}
	if a.Equal(Of(pod("p", "", list("cpu", "1")))) {
		t.Error("no request is the same as one")
	}
}

func TestWhatIsNoAllocationIsNotRead(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", "x", `{"containers":3}`} {
		if a, ok := Decode(text); ok {
			t.Errorf("%q gave %+v", text, a)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"containers":{"c":{"requests":{"cpu":"1"}}},"pod":{"limits":{"memory":"1Gi"}}}`)
	f.Add(`{"containers":{"c":{"requests":{"cpu":"1e99999"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if a, ok := Decode(text); ok && !a.Equal(a) {
			t.Errorf("%q is not equal to itself", text)
		}
	})
}

func TestWhatANodeCanNeverDoIsInfeasible(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	cpu, more, memory := list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "1Gi"), list("cpu", "1", "memory", "2Gi")
	restart := func(p *v1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	}
	for _, tc := range []struct {
		name     string
		old, now *v1.Pod
		static   bool
		p        Policies
		want     string
	}{
		{"a plain resize", pod("p", v1.PodQOSBurstable, cpu), pod("p", v1.PodQOSBurstable, more), false, Policies{}, ""},
		{"a static pod", pod("p", v1.PodQOSBurstable, cpu), pod("p", v1.PodQOSBurstable, more), true, Policies{}, "static-pods"},
		{"exclusive cpus", pod("p", v1.PodQOSGuaranteed, cpu), pod("p", v1.PodQOSGuaranteed, more), false, Policies{StaticCPU: true}, `CPU Manager policy "static"`},
		{"exclusive cpus that may change", pod("p", v1.PodQOSGuaranteed, cpu), pod("p", v1.PodQOSGuaranteed, more), false, Policies{StaticCPU: true, ExclusiveCPUs: true}, ""},
		{"memory beside exclusive cpus", pod("p", v1.PodQOSGuaranteed, cpu), pod("p", v1.PodQOSGuaranteed, memory), false, Policies{StaticCPU: true}, ""},
		{"a burstable pod has none", pod("p", v1.PodQOSBurstable, cpu), pod("p", v1.PodQOSBurstable, more), false, Policies{StaticCPU: true, StaticMemory: true}, ""},
		{"pinned memory", pod("p", v1.PodQOSGuaranteed, cpu), pod("p", v1.PodQOSGuaranteed, memory), false, Policies{StaticMemory: true}, `Memory Manager policy "Static"`},
		{"pinned memory that may change", pod("p", v1.PodQOSGuaranteed, cpu), pod("p", v1.PodQOSGuaranteed, memory), false, Policies{StaticMemory: true, ExclusiveMemory: true}, ""},
		{"memory that may be swapped", pod("p", v1.PodQOSBurstable, cpu), pod("p", v1.PodQOSBurstable, memory), false, Policies{Swap: true}, "swap"},
		{"cpu beside swap", pod("p", v1.PodQOSBurstable, cpu), pod("p", v1.PodQOSBurstable, more), false, Policies{Swap: true}, ""},
		{"memory with a restart beside swap", pod("p", v1.PodQOSBurstable, cpu, restart), pod("p", v1.PodQOSBurstable, memory, restart), false, Policies{Swap: true}, ""},
		{"the pod as a whole", pod("p", v1.PodQOSBurstable, cpu, level(cpu)), pod("p", v1.PodQOSBurstable, cpu, level(more)), false, Policies{NoPodLevel: true}, "InPlacePodLevelResourcesVerticalScaling"},
		{"a container of such a pod", pod("p", v1.PodQOSBurstable, cpu, level(more)), pod("p", v1.PodQOSBurstable, more, level(more)), false, Policies{NoPodLevel: true}, ""},
		{"an init container", pod("p", v1.PodQOSBurstable, cpu, withInit(nil, cpu)), pod("p", v1.PodQOSBurstable, cpu, withInit(nil, more)), false, Policies{NoInitContainers: true}, "InPlacePodVerticalScalingInitContainers"},
		{"a sidecar", pod("p", v1.PodQOSBurstable, cpu, withInit(&always, cpu)), pod("p", v1.PodQOSBurstable, cpu, withInit(&always, more)), false, Policies{NoInitContainers: true}, ""},
	} {
		got := Infeasible(tc.now, tc.old, tc.static, tc.p)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want …%q…", tc.name, got, tc.want)
		}
	}
}

func TestWhoseTurnComesFirst(t *testing.T) {
	high := int32(1000)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := list("cpu", "1"), list("cpu", "2")
	wait := func(uid string, class v1.PodQOSClass, has, wants v1.ResourceList, since time.Time, edit ...func(*v1.Pod)) Waiting {
		return Waiting{Desired: pod(uid, class, wants, edit...), Allocated: pod(uid, class, has, edit...), Since: since}
	}
	important := func(p *v1.Pod) { p.Spec.Priority = &high }
	waiting := []Waiting{
		wait("new", v1.PodQOSBurstable, one, two, time.Time{}),
		wait("late", v1.PodQOSBurstable, one, two, at.Add(time.Minute)),
		wait("early", v1.PodQOSBurstable, one, two, at),
		wait("guaranteed", v1.PodQOSGuaranteed, one, two, at.Add(time.Hour)),
		wait("important", v1.PodQOSBurstable, one, two, at.Add(time.Hour), important),
		wait("less", v1.PodQOSBurstable, two, one, at.Add(time.Hour)),
	}
	Sort(waiting, func(w Waiting) Waiting { return w })
	var got []string
	for _, w := range waiting {
		got = append(got, w.Desired.Name)
	}
	if want := []string{"less", "important", "guaranteed", "early", "late", "new"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestChangesAreCountedByContainerAndKind(t *testing.T) {
	old := pod("p", "", list("cpu", "1", "memory", "1Gi"))
	now := pod("p", "", list("cpu", "2", "memory", "1Mi"), func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = list("cpu", "3") })
	got := Changes(old, now)
	for _, want := range []Change{{"cpu", "requests", "increase"}, {"memory", "requests", "decrease"}, {"cpu", "limits", "add"}} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is missing in %v", want, got)
		}
	}
	if len(got) != 3 || !slices.Contains(Changes(now, old), Change{"cpu", "limits", "remove"}) {
		t.Errorf("changes %v and back %v", got, Changes(now, old))
	}
}

// What may be swapped follows from the request, and a critical pod does not swap.
func TestALimitOfMemoryAndCriticalPodsCanBeResizedBesideSwap(t *testing.T) {
	with := func(limit string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = list("memory", limit) }
	}
	old, now := pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with("2Gi")), pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with("3Gi"))
	if got := Infeasible(now, old, false, Policies{Swap: true}); got != "" {
		t.Errorf("only the limit changes: %q", got)
	}
	priority := int32(2000001000)
	critical := func(p *v1.Pod) { p.Spec.Priority = &priority }
	old, now = pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with("3Gi"), critical), pod("p", v1.PodQOSBurstable, list("memory", "2Gi"), with("3Gi"), critical)
	if got := Infeasible(now, old, false, Policies{Swap: true}); got != "" {
		t.Errorf("a critical pod does not swap: %q", got)
	}
}
