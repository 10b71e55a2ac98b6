package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPodsAreResizedInPlaceThoughPodsyncIsKilled changes the resources of running
// pods, and kills podsync in the middle of it.
func TestPodsAreResizedInPlaceThoughPodsyncIsKilled(t *testing.T) {
	whole := build(t, plan{})
	whole.play([]story{
		{"cpu and memory go up and down", resizeUpAndDown},
		{"a limit below what is in use is refused and told, and a revert mends it", resizeBelowUsage},
		{"a resize that does not fit waits until there is room", resizeDeferred},
		{"a container that asks for it is restarted", resizeWithRestart},
		{"a pod as a whole is resized", resizePodLevel},
		{"three containers change at once, up and down", resizeThree},
		{"requests and limits are added where there were none", resizeByAdding},
		{"amounts that the kernel cannot tell apart are shown as asked for", resizeEquivalents},
		{"an init container that runs, and a sidecar, are resized", resizeInit},
	})
}

// amounts are requests and limits alike.
func amounts(cpu, memory string) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: l, Limits: l.DeepCopy()}
}

// resize asks for other resources of a pod's only container.
func (h *house) resize(name string, r corev1.ResourceRequirements) {
	h.Helper()
	h.patchResize(name, map[string]any{"containers": []any{map[string]any{"name": "app", "resources": r}}})
}

func (h *house) patchResize(name string, spec map[string]any) {
	h.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	h.must(err)
	_, err = h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(h.ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	h.must(err)
}

func (h *house) seen(name string) *corev1.Pod {
	h.Helper()
	p, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(h.ctx, name, metav1.GetOptions{})
	h.must(err)
	return p
}

func conditionOf(p *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}

// waitResized waits until a pod's newest resize is in effect, as its status says.
func (h *house) waitResized(name string) *corev1.Pod {
	h.Helper()
	var p *corev1.Pod
	h.eventually(time.Minute, name+" is resized", func() error {
		var err error
		p, err = h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(h.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, t := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
			if c := conditionOf(p, t); c.Status != "" {
				return fmt.Errorf("%s: %s %s", t, c.Reason, c.Message)
			}
		}
		return boolError(p.Status.ObservedGeneration >= p.Generation && isReady(p), "observed generation %d of %d; %s", p.Status.ObservedGeneration, p.Generation, describe(p))
	})
	return p
}

// number reads a file of the pod's cgroup, or of a container of it, by its name
// on cgroup v1 or v2.
func (h *house) number(p *corev1.Pod, container, v1controller, v1name, v2name string) int64 {
	h.Helper()
	tier := map[corev1.PodQOSClass]string{corev1.PodQOSBurstable: "burstable", corev1.PodQOSBestEffort: "besteffort"}[p.Status.QOSClass]
	dir := filepath.Join(h.inst.CgroupRoot(), "kubepods", tier, "pod"+string(p.UID), container)
	file := filepath.Join("/sys/fs/cgroup", v1controller, dir, v1name)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		file = filepath.Join("/sys/fs/cgroup", dir, v2name)
	}
	raw, err := os.ReadFile(file)
	h.must(err)
	n, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
	h.must(err)
	return n
}

// wantLimits compares the limits that the kernel holds the pod and its only
// container to with these.
func (h *house) wantLimits(p *corev1.Pod, milliCPU, memory int64) {
	h.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	for _, of := range []string{id, ""} {
		if got := h.number(p, of, "memory", "memory.limit_in_bytes", "memory.max"); got != memory {
			h.Errorf("memory limit of %q is %d, want %d", of, got, memory)
		}
		if got := h.number(p, of, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != milliCPU*100 {
			h.Errorf("cpu quota of %q is %d, want %d", of, got, milliCPU*100)
		}
	}
}

// wantSame says that the container was not touched.
func (h *house) wantSame(before, after *corev1.Pod) {
	h.Helper()
	a, b := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if a.ContainerID != b.ContainerID || b.RestartCount != a.RestartCount {
		h.Errorf("the container was restarted: %s became %s, %d restarts", a.ContainerID, b.ContainerID, b.RestartCount)
	}
}

// resizable is a pod with one container of these resources.
func resizable(name, cpu, memory string) *corev1.Pod {
	p := webApp(name)
	p.Spec.Containers[0].Resources = amounts(cpu, memory)
	return p
}

func resizeUpAndDown(h *house) {
	h.create(resizable("sized", "100m", "64Mi"))
	before := h.waitReady("sized", time.Minute)
	h.wantLimits(before, 100, 64<<20)
	// Each round kills podsync a little later after the resize was asked for.
	sizes := []struct {
		milli, mebi int64
	}{{200, 128}, {150, 80}, {300, 96}, {100, 64}, {250, 72}, {50, 128}}
	for n, size := range sizes {
		want := amounts(fmt.Sprintf("%dm", size.milli), fmt.Sprintf("%dMi", size.mebi))
		h.resize("sized", want)
		time.Sleep(time.Duration(n*n) * 10 * time.Millisecond)
		h.killService("podsync")
		after := h.waitResized("sized")
		h.wantSame(before, after)
		h.wantLimits(after, size.milli, size.mebi<<20)
		st := after.Status.ContainerStatuses[0]
		if st.AllocatedResources.Memory().Value() != size.mebi<<20 || st.Resources.Limits.Cpu().MilliValue() != size.milli || after.Status.AllocatedResources.Cpu().MilliValue() != size.milli {
			h.Errorf("round %d: allocated %v, in effect %+v, the pod %v", n, st.AllocatedResources, st.Resources, after.Status.AllocatedResources)
		}
	}
	h.delete("sized")
}

func resizeBelowUsage(h *house) {
	h.create(resizable("greedy", "100m", "64Mi"))
	before := h.waitReady("greedy", time.Minute)
	h.resize("greedy", amounts("100m", "10Ki"))
	refused := func() error {
		c := conditionOf(h.seen("greedy"), corev1.PodResizeInProgress)
		return boolError(c.Reason == corev1.PodReasonError && strings.Contains(c.Message, "memory limit (10240) below current usage"), "condition %+v", c)
	}
	h.eventually(time.Minute, "it is refused", refused)
	h.killService("podsync")
	h.eventually(time.Minute, "it is refused by the next run too", refused)
	now := h.seen("greedy")
	h.wantSame(before, now)
	h.wantLimits(now, 100, 64<<20)
	if st := now.Status.ContainerStatuses[0]; st.AllocatedResources.Memory().Value() != 10<<10 || st.Resources.Limits.Memory().Value() != 64<<20 {
		h.Errorf("allocated %v, in effect %+v", st.AllocatedResources, st.Resources)
	}
	h.resize("greedy", amounts("100m", "80Mi"))
	after := h.waitResized("greedy")
	h.wantSame(before, after)
	h.wantLimits(after, 100, 80<<20)
	h.delete("greedy")
}

func resizeDeferred(h *house) {
	n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	h.must(err)
	all := n.Status.Allocatable.Cpu().MilliValue()
	most := fmt.Sprintf("%dm", all*6/10)
	h.create(resizable("first", most, "32Mi"), resizable("waits", "50m", "32Mi"))
	h.waitReady("first", time.Minute)
	before := h.waitReady("waits", time.Minute)
	h.resize("waits", amounts(most, "32Mi"))
	deferred := func() error {
		p := h.seen("waits")
		c := conditionOf(p, corev1.PodResizePending)
		return boolError(c.Reason == corev1.PodReasonDeferred && strings.HasPrefix(c.Message, "Node didn't have enough resource: cpu") &&
			p.Status.ContainerStatuses[0].AllocatedResources.Cpu().MilliValue() == 50, "condition %+v, %+v", c, p.Status.ContainerStatuses[0].AllocatedResources)
	}
	h.eventually(time.Minute, "it is deferred", deferred)
	h.killService("podsync")
	time.Sleep(2 * time.Second)
	h.must(deferred())
	h.wantLimits(h.seen("waits"), 50, 32<<20)
	h.delete("first")
	after := h.waitResized("waits")
	h.wantSame(before, after)
	h.wantLimits(after, all*6/10, 32<<20)
	h.delete("waits")
}

func resizeWithRestart(h *house) {
	p := resizable("restarts", "100m", "64Mi")
	p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
	}
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	h.create(p)
	before := h.waitReady("restarts", time.Minute)
	h.resize("restarts", amounts("200m", "64Mi"))
	after := h.waitResized("restarts")
	h.wantSame(before, after)
	h.wantLimits(after, 200, 64<<20)
	h.resize("restarts", amounts("200m", "96Mi"))
	h.killService("podsync")
	after = h.waitResized("restarts")
	if st := after.Status.ContainerStatuses[0]; st.RestartCount != 1 || st.ContainerID == before.Status.ContainerStatuses[0].ContainerID {
		h.Errorf("%d restarts, want 1", st.RestartCount)
	}
	h.wantLimits(after, 200, 96<<20)
	h.delete("restarts")
}

func resizePodLevel(h *house) {
	p := webApp("level")
	whole := amounts("100m", "64Mi")
	p.Spec.Resources = &whole
	h.create(p)
	before := h.waitReady("level", time.Minute)
	h.wantLimits(before, 100, 64<<20)
	h.patchResize("level", map[string]any{"resources": amounts("200m", "96Mi")})
	h.killService("podsync")
	after := h.waitResized("level")
	h.wantSame(before, after)
	h.wantLimits(after, 200, 96<<20)
	if r := after.Status.Resources; r == nil || r.Limits.Memory().Value() != 96<<20 || after.Status.AllocatedResources.Cpu().MilliValue() != 200 {
		h.Errorf("shown: %+v, %v", r, after.Status.AllocatedResources)
	}
	h.delete("level")
}

// of makes requests and limits of cpu and memory; empty is none.
func of(cpuRequest, cpuLimit, memoryRequest, memoryLimit string) corev1.ResourceRequirements {
	put := func(l corev1.ResourceList, name corev1.ResourceName, q string) corev1.ResourceList {
		if q == "" {
			return l
		}
		if l == nil {
			l = corev1.ResourceList{}
		}
		l[name] = resource.MustParse(q)
		return l
	}
	return corev1.ResourceRequirements{
		Requests: put(put(nil, corev1.ResourceCPU, cpuRequest), corev1.ResourceMemory, memoryRequest),
		Limits:   put(put(nil, corev1.ResourceCPU, cpuLimit), corev1.ResourceMemory, memoryLimit),
	}
}

// resizeFrom makes a pod with a container for each of before and asks for after,
// and back if that is possible; every number must be right each time.
func (h *house) resizeFrom(name string, before, after []corev1.ResourceRequirements, back bool) {
	h.Helper()
	p := app(name, "sleep")
	one := p.Spec.Containers[0]
	p.Spec.Containers = nil
	for i, r := range before {
		c := *one.DeepCopy()
		c.Name, c.Resources = fmt.Sprintf("c%d", i), r
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	h.create(p)
	first := h.waitReady(name, time.Minute)
	h.wantAll(first, before)
	steps := [][]corev1.ResourceRequirements{after}
	if back {
		steps = append(steps, before)
	}
	for _, step := range steps {
		var patch []any
		for i, r := range step {
			patch = append(patch, map[string]any{"name": fmt.Sprintf("c%d", i), "resources": r})
		}
		h.patchResize(name, map[string]any{"containers": patch})
		h.killService("podsync")
		now := h.waitResized(name)
		h.wantAll(now, step)
		for i := range now.Status.ContainerStatuses {
			if was, is := first.Status.ContainerStatuses[i], now.Status.ContainerStatuses[i]; was.ContainerID != is.ContainerID || is.RestartCount != 0 {
				h.Errorf("container %s was restarted", is.Name)
			}
		}
	}
	h.delete(name)
}

// wantAll compares the status and the kernel with what each container was given.
func (h *house) wantAll(p *corev1.Pod, want []corev1.ResourceRequirements) {
	h.Helper()
	for i, st := range p.Status.ContainerStatuses {
		h.wantContainer(p, st, want[i])
	}
}

func (h *house) wantContainer(p *corev1.Pod, st corev1.ContainerStatus, want corev1.ResourceRequirements) {
	h.Helper()
	if st.Resources == nil || !equality.Semantic.DeepEqual(st.AllocatedResources, want.Requests) || !equality.Semantic.DeepEqual(*st.Resources, want) {
		h.Errorf("%s: allocated %v, in effect %+v; want %+v", st.Name, st.AllocatedResources, st.Resources, want)
	}
	_, id, _ := strings.Cut(st.ContainerID, "://")
	if limit, ok := want.Limits[corev1.ResourceMemory]; ok {
		if got := h.number(p, id, "memory", "memory.limit_in_bytes", "memory.max"); got != limit.Value() {
			h.Errorf("%s: memory limit %d, want %d", st.Name, got, limit.Value())
		}
	}
	if limit, ok := want.Limits[corev1.ResourceCPU]; ok {
		if got := h.number(p, id, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != max(1000, limit.MilliValue()*100) {
			h.Errorf("%s: cpu quota %d for a limit of %s", st.Name, got, limit.String())
		}
	}
	request, ok := want.Requests[corev1.ResourceCPU]
	if !ok {
		request = want.Limits[corev1.ResourceCPU]
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil { // v1 has shares, v2 a coarser weight
		if got := h.number(p, id, "cpu", "cpu.shares", ""); got != max(2, request.MilliValue()*1024/1000) {
			h.Errorf("%s: %d cpu shares for a request of %s", st.Name, got, request.String())
		}
	}
}

func resizeThree(h *house) {
	h.resizeFrom("three",
		[]corev1.ResourceRequirements{amounts("20m", "20Mi"), amounts("20m", "20Mi"), amounts("20m", "20Mi")},
		[]corev1.ResourceRequirements{amounts("30m", "30Mi"), amounts("30m", "30Mi"), amounts("15m", "18Mi")}, true)
}

func resizeByAdding(h *house) {
	h.resizeFrom("adds",
		[]corev1.ResourceRequirements{of("20m", "", "", ""), of("", "", "20Mi", ""), of("20m", "", "20Mi", ""), of("20m", "", "", ""), of("", "", "20Mi", ""), {}},
		[]corev1.ResourceRequirements{of("30m", "50m", "", ""), of("", "", "15Mi", "40Mi"), of("20m", "", "15Mi", ""), of("15m", "", "20Mi", ""), of("20m", "", "30Mi", ""), {}}, false)
}

func resizeEquivalents(h *house) {
	h.resizeFrom("tiny", []corev1.ResourceRequirements{of("2m", "10m", "", "")}, []corev1.ResourceRequirements{of("1m", "5m", "", "")}, true)
}

func resizeInit(h *house) {
	p := webApp("inits")
	side, first := *p.Spec.Containers[0].DeepCopy(), *p.Spec.Containers[0].DeepCopy()
	side.Name, side.RestartPolicy, side.Ports, side.ReadinessProbe, side.Args = "side", ptr(corev1.ContainerRestartPolicyAlways), nil, nil, []string{"sleep"}
	first.Name, first.Ports, first.ReadinessProbe, first.Args = "first", nil, nil, []string{"sleep"} // it never ends
	side.Resources, first.Resources, p.Spec.Containers[0].Resources = amounts("20m", "32Mi"), amounts("20m", "32Mi"), amounts("20m", "32Mi")
	p.Spec.InitContainers = []corev1.Container{side, first}
	h.create(p)
	running := func() error {
		p, err := h.pod("inits")
		if err != nil {
			return err
		}
		st := p.Status.InitContainerStatuses
		return boolError(len(st) == 2 && st[1].State.Running != nil, "%s", describe(p))
	}
	h.eventually(time.Minute, "the init container runs", running)
	want := []corev1.ResourceRequirements{amounts("30m", "48Mi"), amounts("40m", "40Mi")}
	h.patchResize("inits", map[string]any{"initContainers": []any{
		map[string]any{"name": "side", "resources": want[0]}, map[string]any{"name": "first", "resources": want[1]},
	}})
	h.eventually(time.Minute, "they are resized", func() error {
		p, err := h.pod("inits")
		if err != nil {
			return err
		}
		c := conditionOf(p, corev1.PodResizeInProgress)
		return boolError(p.Status.ObservedGeneration >= p.Generation && c.Status == "" && conditionOf(p, corev1.PodResizePending).Status == "", "observed generation %d of %d, %+v", p.Status.ObservedGeneration, p.Generation, c)
	})
	now := h.seen("inits")
	for i, st := range now.Status.InitContainerStatuses {
		h.wantContainer(now, st, want[i])
	}
	h.delete("inits")
}
