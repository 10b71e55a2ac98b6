package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakelogind"
)

// TestAMachineThatGoesDownWaitsForItsPods has a logind on a bus of its own; all else is
// real. It runs on the kubelet, too.
func TestAMachineThatGoesDownWaitsForItsPods(t *testing.T) {
	const critical = 40 * time.Second
	machine := logindOf(t, 100*time.Second)
	h := build(t, plan{supervised: true, overrides: map[string]any{"shutdownGracePeriod": "100s", "shutdownGracePeriodCriticalPods": critical.String()}})
	h.must(h.node.AddStaticPod("own.yaml", staticManifest("own", "http", "port=8080")))
	web, dns := app("web", "stubborn"), app("dns", "sleep")
	dns.Spec.PriorityClassName = "system-node-critical"
	web.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
	h.create(web, dns)
	for _, name := range []string{"web", "dns", "own-" + nodeName} {
		h.waitReady(name, time.Minute)
	}
	h.awaitHeld(machine, 1)

	began := time.Now()
	h.must(machine.Prepare(true))
	h.awaitHeld(machine, 0)
	// For no period to its end, neither the pods' nor that in which the apiserver hears.
	if took := time.Since(began); took > critical {
		t.Errorf("the machine waited for %s", took)
	}
	h.wantNoPeriodOver()
	ends := map[string]time.Time{}
	for _, name := range []string{"web", "dns"} {
		// At once: nobody is there any more who could tell the apiserver.
		p, err := h.pod(name)
		h.must(err)
		ends[name] = h.wantShutDown(p)
	}
	if ends["web"].After(ends["dns"]) {
		t.Errorf("the critical pod ended at %s, before the other, at %s", ends["dns"], ends["web"])
	}
	h.eventually(30*time.Second, "the Node says that it goes down", func() error { return h.notReadyFor("node is shutting down") })
	late := app("late", "sleep")
	h.create(late)
	h.eventually(30*time.Second, "a pod that comes later is refused", func() error {
		p, err := h.pod("late")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "NodeShutdown" &&
			strings.Contains(p.Status.Message, "Pod was rejected as the node is shutting down."), "%s", describe(p))
	})
	data, err := os.ReadFile(filepath.Join(h.node.RootDir, "graceful_node_shutdown_state"))
	h.must(err)
	if !strings.Contains(string(data), `"endTime":"2`) {
		t.Errorf("the state file says %s", data)
	}

	h.must(machine.Prepare(false))
	h.awaitHeld(machine, 1)
	h.waitNodeReady()
	after := app("after", "stubborn")
	after.Spec.TerminationGracePeriodSeconds = ptr(int64(6))
	h.create(after)
	h.waitReady("after", time.Minute)
	if onKubelet() {
		return // Whose shutdown ends with it.
	}

	// Neither the death of who ends the pods nor of who is asked to keeps one from its end.
	h.must(machine.Prepare(true))
	h.eventually(30*time.Second, "the Node says again that it goes down", func() error { return h.notReadyFor("node is shutting down") })
	h.killService("nodestatus")
	h.killService("podsync")
	h.awaitHeld(machine, 0)
	p, err := h.pod("after")
	h.must(err)
	h.wantShutDown(p)
}

// wantShutDown wants a pod to have ended with the machine, and returns when it did.
func (h *house) wantShutDown(p *corev1.Pod) (at time.Time) {
	h.Helper()
	const message = "Pod was terminated in response to imminent node shutdown."
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || p.Status.Message != message {
		h.Errorf("%s: %s, %q, %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	told := false
	for _, c := range p.Status.Conditions {
		told = told || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet && c.Message == message
	}
	if !told {
		h.Errorf("%s: conditions %+v", p.Name, p.Status.Conditions)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			h.Errorf("%s: %+v", p.Name, c.State)
			continue
		}
		at = c.State.Terminated.FinishedAt.Time
	}
	return at
}

// wantNoPeriodOver wants the node not to have waited for anything in vain until now.
func (h *house) wantNoPeriodOver() {
	h.Helper()
	if onKubelet() {
		return
	}
	log, err := os.ReadFile(h.node.Processes["run"].LogFile())
	h.must(err)
	for _, over := range []string{"The time of the pods of a priority is over", "The machine goes down before the apiserver has heard"} {
		if strings.Contains(string(log), over) {
			h.Errorf("the log says: %s", over)
		}
	}
	if !strings.Contains(string(log), "The pods of a priority are ended") {
		h.Error("the log does not tell of the shutdown: its words have changed")
	}
}

// notReadyFor says whether the Node is not ready for this reason.
func (h *house) notReadyFor(message string) error {
	n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" && c.Message == message {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", n.Status.Conditions)
}

// logindOf is a machine's end in the hands of the test: what the node's processes ask
// instead of logind, which waits for delay at most.
func logindOf(t *testing.T, delay time.Duration) *fakelogind.Server {
	machine, err := fakelogind.Start(t.TempDir(), "", delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Close)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.Address)
	return machine
}

// awaitHeld waits until so many locks hold the machine back.
func (h *house) awaitHeld(machine *fakelogind.Server, want int) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
	defer cancel()
	h.must(machine.AwaitHeld(ctx, want))
}
