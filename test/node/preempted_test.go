package node_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// preemptedFile has what the kubelet 1.36.3 says of a pod that makes room for a
// critical one, of one for which there is none, and of a resize that can never be;
// this test wrote it on the kubelet.
const preemptedFile = "testdata/preempted.txt"

func TestPreemptionAndImpossibleResizesReadAsTheKubeletsDo(t *testing.T) {
	h := build(t, plan{overrides: map[string]any{
		"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static",
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "50Mi"}}},
	}})
	most := h.allBut(400)
	victim, exact, large := app("victim", "stubborn"), app("exact", "sleep"), app("large", "sleep")
	large.Spec.Containers[0].Resources = cpuAndMemory("50m", "32Mi", "50m", "32Mi")
	victim.Spec.TerminationGracePeriodSeconds = ptr(int64(3))
	victim.Spec.Containers[0].Resources = cpuAndMemory(most, "16Mi", most, "64Mi")
	exact.Spec.Containers[0].Resources = cpuAndMemory("200m", "32Mi", "200m", "32Mi")
	h.create(victim, exact, large)
	h.waitReady("victim", time.Minute)
	h.waitReady("exact", time.Minute)
	h.waitReady("large", time.Minute)

	h.resize("exact", cpuAndMemory("150m", "32Mi", "150m", "32Mi"))
	h.resize("large", cpuAndMemory("50m", "48Mi", "50m", "48Mi"))
	got := []string{"exact: " + h.pendingResize("exact", corev1.PodReasonInfeasible), "large: " + h.pendingResize("large", corev1.PodReasonInfeasible)}
	for name, cpu := range map[string]string{"too-large": "1000", "critical": "500m"} {
		p := app(name, "sleep")
		p.Spec.PriorityClassName = "system-node-critical"
		p.Spec.Containers[0].Resources = cpuAndMemory(cpu, "16Mi", cpu, "64Mi")
		h.create(p)
		got = append(got, name+": "+h.rejection(name))
	}
	got = append(got, "victim: "+h.end("victim"))
	all := func() []string {
		lines := slices.Clone(got)
		for _, name := range []string{"too-large", "critical", "victim", "exact"} {
			lines = append(lines, name+"'s events: "+h.warnings(name))
		}
		slices.Sort(lines)
		return lines
	}
	if os.Getenv("POLYLET_WRITE_REJECTIONS") != "" {
		h.must(os.WriteFile(preemptedFile, []byte(strings.Join(all(), "\n")+"\n"), 0o644))
		return
	}
	want, err := os.ReadFile(preemptedFile)
	h.must(err)
	h.eventually(time.Minute, "all reads as the kubelet's", func() error { // events are on their way for a while
		var errs []error
		lines := all()
		for i, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
			if i >= len(lines) || lines[i] != line {
				errs = append(errs, fmt.Errorf("polylet:  %s\nkubelet: %s", strings.Join(lines[i:min(i+1, len(lines))], ""), line))
			}
		}
		return errors.Join(errs...)
	})
}

// end is what a node says of a pod that it has ended: status, its condition and
// its container.
func (h *house) end(name string) (text string) {
	h.Helper()
	h.quietly(2*time.Minute, name+" has ended", func() error {
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("%s", describe(p))
		}
		var parts []string
		for _, c := range p.Status.Conditions {
			parts = append(parts, fmt.Sprintf("%s %s %q %q", c.Type, c.Status, c.Reason, c.Message))
		}
		slices.Sort(parts)
		for _, c := range p.Status.ContainerStatuses {
			parts = append(parts, fmt.Sprintf("restarts %d, ready %v, terminated %v", c.RestartCount, c.Ready, c.State.Terminated != nil))
		}
		text = fmt.Sprintf("%s | %s | %s | %s", p.Status.Phase, p.Status.Reason, p.Status.Message, strings.Join(parts, " | "))
		return nil
	})
	return text
}

// warnings are the events of a pod but those of its start, at which an apiserver
// under load may not know a pod yet that asks for its token.
func (h *house) warnings(name string) string {
	h.Helper()
	events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	h.must(err)
	var parts []string
	for _, e := range events.Items {
		switch e.Reason {
		case "Scheduled", "Pulling", "Pulled", "Created", "Started", "MissingClusterDNS", "FailedMount":
		default:
			parts = append(parts, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Message))
		}
	}
	slices.Sort(parts)
	return machineNumbers.ReplaceAllString(strings.Join(slices.Compact(parts), " | "), "$1: N")
}
