package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each test here breaks one thing, wants one clear error that names it where
// Kubernetes users look, and wants everything else to go on.

func TestABrokenStaticManifestIsNamedAndStopsNothingElse(t *testing.T) {
	h := build(t, plan{})
	h.must(h.node.AddStaticPod("a-broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [}\n"))
	h.must(h.node.AddStaticPod("b-good.yaml", staticManifest("good", "http", "port=8080")))
	h.waitReady("good-"+nodeName, time.Minute)
	h.eventually(time.Minute, "the log names the broken file", func() error {
		return boolError(strings.Contains(h.logs(), "a-broken.yaml"), "a-broken.yaml is not in the log")
	})
	h.must(h.node.AddStaticPod("a-broken.yaml", staticManifest("mended", "http", "port=8081")))
	h.waitReady("mended-"+nodeName, time.Minute)
}

// A slip of the pen, and podsync started anew beside it: what runs is not stopped.
func TestAStaticPodWhoseManifestIsBrokenOutlivesPodsync(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet stops the pod")
	}
	h := build(t, plan{})
	manifest := staticManifest("steady", "http", "port=8080")
	h.must(h.node.AddStaticPod("steady.yaml", manifest))
	before := h.waitReady("steady-"+nodeName, time.Minute)
	h.must(h.node.AddStaticPod("steady.yaml", manifest[:len(manifest)/2]))
	h.killService("podsync")
	h.must(h.node.AddStaticPod("other.yaml", staticManifest("other", "http", "port=8081")))
	h.waitReady("other-"+nodeName, time.Minute) // podsync has heard all sources meanwhile
	h.eventually(time.Minute, "the log names the pod that goes on", func() error {
		return boolError(strings.Contains(h.logs(), "no manifest that can be read is that of default/steady-"+nodeName+":"), "it is not said that it is in doubt")
	})
	path := filepath.Join(h.node.StaticPods, "steady.yaml")
	h.must(os.Rename(path, path+"~")) // as editors save
	h.must(os.WriteFile(path, []byte("still: [\n"), 0o600))
	h.must(os.Remove(path + "~"))
	h.eventually(time.Minute, "the log names the next slip", func() error {
		return boolError(strings.Contains(h.logs(), "did not find expected node content"), "it is not said what is wrong now")
	})
	h.must(h.node.AddStaticPod("steady.yaml", manifest))
	h.killService("podsync") // what it thinks now is what it finds
	h.waitReady("other-"+nodeName, time.Minute)
	after := h.waitReady("steady-"+nodeName, time.Minute)
	if a, b := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.ContainerID != b.ContainerID || b.RestartCount != 0 || before.UID != after.UID {
		t.Errorf("the pod was stopped: %s, then %s", describe(before), describe(after))
	}
}

func TestAnUnknownImageIsReportedOnThePodAndHealsWhenItAppears(t *testing.T) {
	h := build(t, plan{})
	bad := webApp("bad")
	bad.Spec.Containers[0].Image = "registry.polylet.test/nobody/knows:v9"
	h.create(bad, webApp("good"))
	h.waitReady("good", time.Minute)
	h.eventually(time.Minute, "the status says that the image cannot be pulled", func() error {
		p, err := h.pod("bad")
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			w := s.State.Waiting
			if w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") && strings.Contains(w.Message, "nobody/knows:v9") {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	})
	h.eventually(time.Minute, "an event says so too", func() error {
		events := h.events("bad")
		return boolError(strings.Contains(events, "Failed: ") && strings.Contains(events, "nobody/knows:v9"), "events are:\n%s", events)
	})
	h.pushAs("nobody/knows:v9")
	h.waitReady("bad", 3*time.Minute)
}

func TestARuntimeThatComesLaterIsNamedAndThenUsed(t *testing.T) {
	h := build(t, plan{noRuntime: true, noNode: true})
	for _, p := range h.node.Processes {
		h.must(p.Launch())
	}
	h.eventually(90*time.Second, "the log names the socket, or the Node's condition does", func() error {
		if strings.Contains(h.logs(), h.runtime.Socket) {
			return nil
		}
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("not in the log, and: %w", err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && strings.Contains(c.Message, "runtime") {
				return nil
			}
		}
		return fmt.Errorf("%s is not in the log", h.runtime.Socket)
	})
	for name, p := range h.node.Processes {
		select {
		case <-p.Done():
			t.Errorf("%s ended because the runtime was not there: %v", name, p.ExitErr())
		default:
		}
	}
	h.must(h.runtime.Process.Start(h.ctx))
	h.waitNodeReady()
	h.create(webApp("late"))
	h.waitReady("late", time.Minute)
}

func TestPodsGoOnWhileTheRuntimeIsRestarted(t *testing.T) {
	h := build(t, plan{})
	h.create(webApp("web"))
	before := h.waitReady("web", time.Minute)
	h.runtime.Kill()
	time.Sleep(2 * time.Second)
	h.must(h.runtime.Process.Start(h.ctx))
	h.create(webApp("next"))
	h.waitReady("next", time.Minute)
	after := h.waitReady("web", time.Minute)
	if after.Status.ContainerStatuses[0].RestartCount != 0 || after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container did not survive: %s", describe(after))
	}
}

func TestPodsGoOnWhileTheApiserverIsAway(t *testing.T) {
	h := build(t, plan{})
	h.must(h.node.AddStaticPod("early.yaml", staticManifest("early", "http", "port=8080")))
	h.create(webApp("web"))
	web := h.waitReady("web", time.Minute)
	h.waitReady("early-"+nodeName, time.Minute)
	h.cluster.APIServer.Kill()
	h.must(h.node.AddStaticPod("meanwhile.yaml", staticManifest("meanwhile", "http", "port=8080")))
	h.eventually(time.Minute, "a static pod starts without an apiserver", func() error {
		_, err := h.sandboxIP("meanwhile-" + nodeName)
		return err
	})
	// The container dies while nobody can be told, and must come back.
	base := "http://" + web.Status.PodIP + ":8080"
	h.tryGet(base + "/exit?code=1") // the server dies on it
	h.eventually(time.Minute, "the container is restarted", func() error {
		_, err := h.tryGet(base + "/healthz")
		return err
	})
	h.must(h.cluster.APIServer.Start(h.ctx))
	h.eventually(time.Minute, "the restart is reported and the pod is Ready", func() error {
		p, err := h.pod("web")
		if err != nil {
			return err
		}
		return boolError(isReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1, "%s", describe(p))
	})
	h.waitReady("meanwhile-"+nodeName, time.Minute)
	h.create(webApp("after"))
	h.waitReady("after", time.Minute)
	h.waitNodeReady()
}

func TestAPodThatIgnoresTermIsGoneAfterItsGracePeriod(t *testing.T) {
	h := build(t, plan{})
	p := takesSignals(app("stubborn", "stubborn"))
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(3))
	h.create(p)
	h.waitReady("stubborn", time.Minute)
	began := time.Now()
	h.delete("stubborn")
	h.waitGone("stubborn", time.Minute)
	if took := time.Since(began); took < 2500*time.Millisecond {
		t.Errorf("it was gone after %s, before its grace period of 3 s", took)
	}
}

// logs is everything that the node's processes have written so far.
func (h *house) logs() string {
	var text strings.Builder
	for _, p := range h.node.Processes {
		data, err := os.ReadFile(p.LogFile())
		h.must(err)
		text.Write(data)
	}
	return text.String()
}
