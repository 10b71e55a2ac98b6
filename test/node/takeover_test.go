package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A kubelet runs pods, and polylet takes its place on the same directories. What
// the kubelet had allocated to a pod whose resize waits, only a file of the
// kubelet's says.
func TestPodsOfAKubeletGoOnUnderPolyletWithWhatItHadAllocated(t *testing.T) {
	if onKubelet() {
		t.Skip("takes the kubelet's place itself")
	}
	h := build(t, plan{kubelet: true})
	p := webApp("taken")
	p.Spec.Containers[0].Resources = cpuAndMemory("100m", "64Mi", "200m", "128Mi")
	big := webApp("big")
	most := h.allBut(500)
	big.Spec.Containers[0].Resources = cpuAndMemory(most, "16Mi", most, "64Mi")
	h.create(p, big)
	before := h.waitReady("taken", time.Minute)
	h.waitReady("big", time.Minute)
	h.resize("taken", cpuAndMemory("1", "64Mi", "1", "128Mi"))
	h.eventually(time.Minute, "the kubelet defers the resize", func() error { return h.deferred("taken") })
	h.node.Stop()
	state := filepath.Join(h.node.RootDir, "allocated_pods_state")
	if dir := os.Getenv("POLYLET_WRITE_KUBELET_STATE"); dir != "" {
		data, err := os.ReadFile(state)
		h.must(err)
		h.must(os.WriteFile(filepath.Join(dir, "allocated_pods_state"), data, 0o644))
	}

	h.prepareNode(plan{})
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	// The apiserver has what the kubelet said; this is what polylet says.
	h.eventually(time.Minute, "polylet says what the pod waits for", func() error {
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == "taken" && len(p.Status.ContainerStatuses) > 0 })
		if at < 0 {
			return errors.New("/pods has no status of it")
		}
		now := &pods.Items[at]
		if err := isDeferred(now); err != nil {
			return err
		}
		st := now.Status.ContainerStatuses[0]
		cpu := st.AllocatedResources[corev1.ResourceCPU]
		return boolError(cpu.String() == "100m", "allocated are %v, the kubelet had allocated 100m", st.AllocatedResources)
	})
	after := h.waitReady("taken", time.Minute)
	h.wantSame(before, after)

	// A damaged file of a kubelet is named with what to do, and stops nothing.
	h.node.Stop()
	h.must(os.WriteFile(state, []byte(`{"data":"{}","checksum":1}`), 0o600))
	h.must(os.Remove(filepath.Join(h.node.RootDir, "polylet", "allocations.json")))
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	h.eventually(time.Minute, "podsync names the damaged file", func() error {
		said := h.logs()
		return boolError(strings.Contains(said, state+" cannot be used: it is damaged") && strings.Contains(said, "move the file away"), "no such line")
	})
	h.wantSame(before, h.waitReady("taken", time.Minute))
}

func cpuAndMemory(cpu, memory, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuLimit, memoryLimit)}
}

// deferred checks that a pod's resize waits.
func (h *house) deferred(name string) error {
	p, err := h.pod(name)
	if err != nil {
		return err
	}
	return isDeferred(p)
}

func isDeferred(p *corev1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return boolError(c.Reason == corev1.PodReasonDeferred, "PodResizePending is %s: %s", c.Reason, c.Message)
		}
	}
	return boolError(false, "no PodResizePending among %v", p.Status.Conditions)
}

// The way back: a kubelet that knows nothing of what polylet allocated would take what
// the specs ask for as allocated, refuse pods that run for want of room, and restart
// containers whose resize policy wants that.
func TestPodsOfPolyletGoOnUnderAKubeletWithWhatPolyletHadAllocated(t *testing.T) {
	if onKubelet() {
		t.Skip("has the kubelet take polylet's place itself")
	}
	h := build(t, plan{})
	waits, restarts, big := webApp("waits"), webApp("restarts"), webApp("big")
	waits.Spec.Containers[0].Resources = cpuAndMemory("100m", "64Mi", "200m", "128Mi")
	restarts.Spec.Containers[0].Resources = cpuAndMemory("50m", "64Mi", "50m", "64Mi")
	restarts.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	most := h.allBut(500)
	big.Spec.Containers[0].Resources = cpuAndMemory(most, "16Mi", most, "64Mi")
	h.create(waits, restarts, big)
	for _, name := range []string{"waits", "restarts", "big"} {
		h.waitReady(name, time.Minute)
	}
	h.resize("waits", cpuAndMemory("1", "64Mi", "1", "128Mi"))
	h.eventually(time.Minute, "polylet defers the resize", func() error { return h.deferred("waits") })
	h.resize("restarts", cpuAndMemory("50m", "96Mi", "50m", "96Mi"))
	h.eventually(time.Minute, "the resize is in effect after a restart", func() error {
		p, err := h.pod("restarts")
		if err != nil {
			return err
		}
		st := p.Status.ContainerStatuses[0]
		return boolError(st.Ready && st.RestartCount == 1, "restarted %d times, ready: %v", st.RestartCount, st.Ready)
	})
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"waits", "restarts", "big"} {
		before[name] = h.waitReady(name, time.Minute)
	}
	h.node.Stop()

	h.prepareNode(plan{kubelet: true})
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	h.eventually(time.Minute, "the kubelet knows all three", func() error {
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		known := 0
		for _, p := range pods.Items {
			if _, ours := before[p.Name]; ours && len(p.Status.ContainerStatuses) > 0 {
				known++
			}
		}
		return boolError(known == 3, "it knows %d", known)
	})
	time.Sleep(10 * time.Second) // what it does to a pod, it does at its first sync
	for name, was := range before {
		h.wantSame(was, h.waitReady(name, time.Minute))
	}
	h.must(h.deferred("waits"))
}
