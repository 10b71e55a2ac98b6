package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podsync is killed while a machine goes down: an ordinary pod and a static one have
// ended, and a critical one takes its time. The next podsync knows nothing of a static
// pod's end, which is to begin anew with the machine. All else is as without: what has
// ended stays so, the apiserver hears how, and the lock is given back in time.
func TestWhatHasEndedWithTheMachineStaysSoThoughPodsyncIsKilledMeanwhile(t *testing.T) {
	if onKubelet() {
		t.Skip("a kubelet that is killed holds no lock any more")
	}
	machine := logindOf(t, 120*time.Second)
	const critical = 60 * time.Second
	h := build(t, plan{supervised: true, overrides: map[string]any{"shutdownGracePeriod": "120s", "shutdownGracePeriodCriticalPods": critical.String()}})
	h.must(h.node.AddStaticPod("own.yaml", staticManifest("own", "http", "port=8080")))
	web, slow := app("web", "sleep"), app("slow", "stubborn")
	slow.Spec.PriorityClassName = "system-node-critical"
	slow.Spec.TerminationGracePeriodSeconds = ptr(int64(12))
	h.create(web, slow)
	for _, name := range []string{"web", "slow", "own-" + nodeName} {
		h.waitReady(name, time.Minute)
	}
	h.awaitHeld(machine, 1)

	began := time.Now()
	h.must(machine.Prepare(true))
	h.eventually(30*time.Second, "the static pod has ended", func() error {
		running, _ := h.made("own-" + nodeName)
		return boolError(running == 0, "%d of its containers run", running)
	})
	if running, _ := h.made("slow"); running != 1 {
		t.Fatalf("%d containers of the slow pod run: podsync is to be killed before it has ended", running)
	}
	h.killService("podsync")
	h.awaitHeld(machine, 0)
	t.Logf("MEASURED shutdown: the lock was held for %s", time.Since(began).Round(100*time.Millisecond))
	if took := time.Since(began); took > critical {
		t.Errorf("the machine waited for %s", took)
	}
	h.wantNoPeriodOver()
	for _, pod := range []string{"web", "slow", "own-" + nodeName} {
		running, made := h.made(pod)
		t.Logf("%s: %d containers were made", pod, made)
		// Of the static pod's end the new podsync does not know: it may begin, and ends again.
		if running != 0 || made > 1 && !strings.HasPrefix(pod, "own") {
			t.Errorf("%s: %d containers run and %d were made when the machine may go down", pod, running, made)
		}
	}
	for _, name := range []string{"web", "slow"} {
		p, err := h.pod(name)
		h.must(err)
		h.wantShutDown(p)
	}

	// It is called off: the static pod begins anew, for nobody else would make it again.
	h.must(machine.Prepare(false))
	h.awaitHeld(machine, 1)
	h.waitNodeReady()
	h.waitReady("own-"+nodeName, time.Minute)
	for _, name := range []string{"web", "slow"} {
		if p, err := h.pod(name); err != nil || p.Status.Phase != corev1.PodFailed {
			t.Errorf("%s has ended: %v, %v", name, err, describe(p))
		}
	}
}

// made says how many containers of a pod the runtime has, and how many of them run.
func (h *house) made(pod string) (running, made int) {
	h.Helper()
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	}})
	h.must(err)
	for _, c := range list.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running++
		}
	}
	return running, len(list.GetContainers())
}
