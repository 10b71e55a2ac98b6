package resize

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

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

// As everywhere else: who has written the pod may have left it to be computed.
func TestThePodsClassCountsThoughItsStatusDoesNotSayIt(t *testing.T) {
	limited := func(cpu, memory string) *v1.Pod {
		return pod("p", "", list("cpu", cpu, "memory", memory), func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = list("cpu", cpu, "memory", memory) })
	}
	if got := Infeasible(limited("2", "1Gi"), limited("1", "1Gi"), false, Policies{StaticCPU: true}); got != messageCPU {
		t.Errorf("exclusive cpus: %q", got)
	}
	old, now := pod("p", "", list("memory", "1Gi")), pod("p", "", list("memory", "2Gi"))
	if got := Infeasible(now, old, false, Policies{Swap: true}); got != messageSwap {
		t.Errorf("memory that may be swapped: %q", got)
	}
	waiting := []*v1.Pod{pod("a", "", list("cpu", "1")), limited("1", "1Gi")}
	Sort(waiting, func(p *v1.Pod) Waiting { return Waiting{Desired: p, Allocated: p} })
	if podutil.QOS(waiting[0]) != v1.PodQOSGuaranteed {
		t.Error("a guaranteed pod comes behind another")
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
	for name, limits := range map[string][2]string{"does not swap and would then": {"1Gi", "2Gi"}, "swaps and would then not": {"2Gi", "3Gi"}} {
		old, now := pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with(limits[0])), pod("p", v1.PodQOSBurstable, list("memory", "512Mi"), with(limits[1]))
		if limits[1] == "3Gi" {
			now = pod("p", v1.PodQOSBurstable, list("memory", "3Gi"), with(limits[1]))
		}
		if got := Infeasible(now, old, false, Policies{Swap: true}); got != messageSwap {
			t.Errorf("one that %s: %q", name, got)
		}
	}
	old, now = pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with("1Gi")), pod("p", v1.PodQOSBurstable, list("memory", "2Gi"), with("2Gi"))
	if got := Infeasible(now, old, false, Policies{Swap: true}); got != "" {
		t.Errorf("one that never swaps: %q", got)
	}
	priority := int32(2000001000)
	critical := func(p *v1.Pod) { p.Spec.Priority = &priority }
	old, now = pod("p", v1.PodQOSBurstable, list("memory", "1Gi"), with("3Gi"), critical), pod("p", v1.PodQOSBurstable, list("memory", "2Gi"), with("3Gi"), critical)
	if got := Infeasible(now, old, false, Policies{Swap: true}); got != "" {
		t.Errorf("a critical pod does not swap: %q", got)
	}
}
