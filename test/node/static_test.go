package node_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestACriticalStaticPodTakesThePlaceOfTheCheapestPod(t *testing.T) {
	h := build(t, plan{overrides: map[string]any{"maxPods": 2}})
	precious := webApp("precious")
	precious.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	h.create(precious, webApp("cheap"))
	h.waitReady("precious", time.Minute)
	h.waitReady("cheap", time.Minute)

	h.create(app("late", "http", "port=8080"))
	h.eventually(time.Minute, "an ordinary pod is rejected on the full node", func() error {
		p, err := h.pod("late")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "OutOfpods" &&
			strings.HasPrefix(p.Status.Message, "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"), "%s", describe(p))
	})

	h.must(h.node.AddStaticPod("critical.yaml", staticManifest("critical", "http", "port=8080")))
	h.waitReady("critical-"+nodeName, time.Minute)
	h.eventually(time.Minute, "the victim's status says why it ended", func() error {
		p, err := h.pod("cheap")
		if err != nil {
			return err
		}
		// It ends as its process does: a reason is only of what has failed.
		end := endOf(p)
		told := end != nil && end.ExitCode == 0 && p.Status.Phase == corev1.PodSucceeded && p.Status.Reason == "" ||
			end != nil && end.ExitCode != 0 && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Preempting" && p.Status.Message == "Preempted in order to admit critical pod"
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
				c.Message == "Pod was preempted by Kubelet to accommodate a critical pod." {
				return boolError(told, "%s", describe(p))
			}
		}
		return fmt.Errorf("%s; conditions %v", describe(p), p.Status.Conditions)
	})
	if p, err := h.pod("precious"); err != nil || !isReady(p) {
		t.Errorf("the guaranteed pod had to go: %v %v", describe(p), err)
	}
	h.eventually(time.Minute, "the event is there", func() error {
		events, err := h.cluster.Client.CoreV1().Events("default").List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Preempting,involvedObject.name=cheap"})
		if err != nil {
			return err
		}
		return boolError(len(events.Items) == 1 && events.Items[0].Type == corev1.EventTypeWarning, "%d events", len(events.Items))
	})
}

// endOf is how a pod's first container has ended; nil when it has not.
func endOf(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if len(p.Status.ContainerStatuses) == 0 {
		return nil
	}
	return p.Status.ContainerStatuses[0].State.Terminated
}

func TestStaticPodsOfAURLRunWhileItsServerIsAway(t *testing.T) {
	var body atomic.Value
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text := body.Load().(string)
		if r.Header.Get("X-Token") != "open sesame" || text == "" {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, text) // a client that is gone misses it
	}))
	defer server.Close()
	body.Store(staticManifest("web", "http", "port=8080"))
	h := build(t, plan{overrides: map[string]any{
		"staticPodURL": server.URL, "staticPodURLHeader": map[string]any{"X-Token": []string{"open sesame"}}, "httpCheckFrequency": "1s",
	}})
	first := h.waitReady("web-"+nodeName, time.Minute)
	if src := first.Annotations["kubernetes.io/config.source"]; src != "http" {
		t.Errorf("its source is %q", src)
	}
	for what, text := range map[string]string{"nonsense": "kind: [", "an error": ""} {
		body.Store(text)
		seen := asked.Load() + 3
		h.eventually(time.Minute, "the server has answered with "+what, func() error {
			return boolError(asked.Load() >= seen, "asked %d times", asked.Load())
		})
		if p, err := h.pod("web-" + nodeName); err != nil || p.UID != first.UID || !isReady(p) {
			t.Errorf("%s from the server took the pod away: %v", what, err)
		}
	}
	body.Store(staticManifest("other", "http", "port=8080"))
	h.waitReady("other-"+nodeName, time.Minute)
	h.waitGone("web-"+nodeName, time.Minute)
}

// No apiserver remembers the pods of a standalone node: podsync has to.
func TestAStaticPodIsReadySinceItBecameSoThoughPodsyncIsKilled(t *testing.T) {
	h := build(t, plan{standalone: true})
	h.must(h.node.AddStaticPod("steady.yaml", staticManifest("steady", "http", "port=8080")))
	ready := func(was time.Time) (since time.Time) {
		h.Helper()
		h.waitStatic("steady", "it is Ready", time.Minute, func(p *corev1.Pod) error {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					since = c.LastTransitionTime.Time
				}
			}
			return boolError(isReady(p), "%s", describe(p))
		})
		if !was.IsZero() && !since.Equal(was) {
			t.Errorf("Ready since %s, was since %s", since, was)
		}
		return since
	}
	since := ready(time.Time{})
	for range 3 {
		h.quietly(time.Minute, "seconds that a moved time would tell", func() error {
			return boolError(time.Since(since) > 3*time.Second, "only %s", time.Since(since))
		})
		h.killService("podsync")
		ready(since)
	}
}
