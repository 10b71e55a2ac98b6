package node_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rejectionsFile has what the kubelet 1.36.3 says of pods that it does not take;
// this test wrote it on the kubelet.
const rejectionsFile = "testdata/rejections.txt"

// rejectedPods are pods that a node refuses, each for one reason.
func rejectedPods() map[string]func(*corev1.Pod) {
	asks := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
		}
	}
	selects := func(label, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{label: value} }
	}
	sysctl := func(name, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: value}}}
		}
	}
	return map[string]func(*corev1.Pod){
		"cpu":       asks(corev1.ResourceCPU, "1000"),
		"memory":    asks(corev1.ResourceMemory, "1000Ti"),
		"ephemeral": asks(corev1.ResourceEphemeralStorage, "1000Ti"),
		"extended":  asks("example.com/thing", "3"),
		"two": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Ti"),
			}
		},
		"pod-level": func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}}
		},
		"os-label": selects("kubernetes.io/os", "windows"),
		"os-label-of-pod": func(p *corev1.Pod) {
			p.Labels = map[string]string{"kubernetes.io/os": "windows"}
		},
		"selector": selects("example.com/label", "none"),
		"os": func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
		},
		"affinity": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "example.com/label", Operator: corev1.NodeSelectorOpExists},
				}}},
			}}}
		},
		"port": func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 18765}}
		},
		"sysctl":        sysctl("kernel.msgmax", "65536"),
		"sysctl-slash":  sysctl("net/core/somaxconn", "1000"),
		"sysctl-nobody": sysctl("vm.swappiness", "1"),
		"apparmor": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
		},
		"two-taints": func(p *corev1.Pod) { p.Spec.Tolerations = nil },
		"one-taint": func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/first", Operator: corev1.TolerationOpExists}}
		},
	}
}

func TestRejectionsReadAsTheKubeletsDo(t *testing.T) {
	h := build(t, plan{})
	holder := app("holder", "sleep")
	holder.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 18765}}
	most := h.allBut(500)
	holder.Spec.Containers[0].Resources = cpuAndMemory(most, "16Mi", most, "64Mi")
	growing := app("growing", "sleep")
	growing.Spec.Containers[0].Resources = cpuAndMemory("100m", "16Mi", "200m", "32Mi")
	h.create(holder, growing)
	h.waitReady("holder", time.Minute)
	h.waitReady("growing", time.Minute)
	nodes := h.cluster.Client.CoreV1().Nodes()
	h.quietly(time.Minute, "the node has its taints", func() error {
		n, err := nodes.Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, name := range []string{"example.com/first", "example.com/second"} {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: name, Effect: corev1.TaintEffectNoExecute})
		}
		_, err = nodes.Update(h.ctx, n, metav1.UpdateOptions{})
		return err
	})
	h.resize("growing", cpuAndMemory("1", "16Mi", "1", "32Mi"))
	got := []string{"growing: " + h.deferral("growing")}
	for name, change := range rejectedPods() {
		p := app(name, "sleep")
		change(p)
		h.create(p)
		got = append(got, name+": "+h.rejection(name))
	}
	slices.Sort(got)
	if os.Getenv("POLYLET_WRITE_REJECTIONS") != "" {
		h.must(os.WriteFile(rejectionsFile, []byte(strings.Join(got, "\n")+"\n"), 0o644))
		return
	}
	want, err := os.ReadFile(rejectionsFile)
	h.must(err)
	for i, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		if i >= len(got) || got[i] != line {
			t.Errorf("polylet:  %s\nkubelet: %s", strings.Join(got[i:min(i+1, len(got))], ""), line)
		}
	}
}

// allBut is the CPU that the node has for pods but so many thousandths.
func (h *house) allBut(milli int64) string {
	h.Helper()
	n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	h.must(err)
	return resource.NewMilliQuantity(n.Status.Allocatable.Cpu().MilliValue()-milli, resource.DecimalSI).String()
}

// rejection is what the node says of a pod that it rejects, or that it takes it:
// status and event, without the numbers that the machine has.
func (h *house) rejection(name string) (text string) {
	h.Helper()
	h.quietly(2*time.Minute, name+" is rejected or taken", func() error {
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		if isReady(p) {
			text = "taken"
			return nil
		}
		events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodFailed || len(events.Items) == 0 {
			return fmt.Errorf("%s; %d events", describe(p), len(events.Items))
		}
		e := events.Items[0]
		text = fmt.Sprintf("%s | %s | %s %s | %s", p.Status.Reason, p.Status.Message, e.Type, e.Reason, e.Message)
		return nil
	})
	return machineNumbers.ReplaceAllString(text, "$1: N")
}

// deferral is what the node says of a resize that has to wait: condition and event.
func (h *house) deferral(name string) string {
	h.Helper()
	h.quietly(time.Minute, "the resize of "+name+" waits", func() error { return h.deferred(name) })
	return h.pendingResize(name, corev1.PodReasonDeferred)
}

// pendingResize is what the node says of a resize that is not allocated for a
// reason: condition and event.
func (h *house) pendingResize(name, reason string) (text string) {
	h.Helper()
	h.quietly(time.Minute, "the resize of "+name+" is "+reason, func() error {
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Resize" + reason + ",involvedObject.name=" + name})
		if err != nil || len(events.Items) == 0 {
			return fmt.Errorf("no event Resize%s: %v", reason, err)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizePending && c.Reason == reason {
				text = fmt.Sprintf("%s | %s | %s %s | %s", c.Reason, c.Message, events.Items[0].Type, events.Items[0].Reason, events.Items[0].Message)
				return nil
			}
		}
		return fmt.Errorf("no such condition: %+v", p.Status.Conditions)
	})
	return machineNumbers.ReplaceAllString(text, "$1: N")
}

var machineNumbers = regexp.MustCompile(`(used|capacity|q): \d+`)
