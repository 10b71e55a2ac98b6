package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// wantFor is the wish of a pod of a namespace with these annotations.
func wantFor(namespace string, annotations map[string]string) Request {
	return Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Annotations: annotations}}, Container: "c", Image: "a:1",
		Sandbox: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: namespace}},
	}
}

func TestTheRuntimeIsToldForWhichPodAnImageIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		if _, err := p.Ensure(t.Context(), wantFor("ns", map[string]string{"run": "where"})); err != nil {
			t.Fatal(err)
		}
		if len(f.sandboxes) != 1 || f.sandboxes[0].GetMetadata().GetNamespace() != "ns" {
			t.Errorf("pulled for %v", f.sandboxes)
		}
		if len(f.asked) != 3 {
			t.Errorf("asked %d times, want before the pull, the pull, and after it", len(f.asked))
		}
		for _, spec := range f.asked {
			if spec.GetImage() != "a:1" || spec.GetAnnotations()["run"] != "where" {
				t.Errorf("asked for %v", spec)
			}
		}
	})
}

func TestPullsAreSharedByPodsThatCannotGetAnotherImage(t *testing.T) {
	many := make([]Request, 50)
	for i := range many { // the pods of a Job, each with its address written on it
		many[i] = wantFor("ns", map[string]string{"job": "j", "cni.projectcalico.org/podIP": fmt.Sprint(i)})
	}
	class := wantFor("ns", nil)
	class.Pod.Spec.RuntimeClassName = ptr.To("kata")
	handler := func(name string) Request {
		return wantFor("ns", map[string]string{"io.containerd.cri.runtime-handler": name})
	}
	for name, c := range map[string]struct {
		wants []Request
		pulls int
	}{
		"50 pods of a namespace":  {many, 1},
		"two namespaces":          {[]Request{wantFor("ns", nil), wantFor("other", nil), wantFor("ns", nil)}, 2},
		"two runtime classes":     {[]Request{wantFor("ns", nil), class, class}, 2},
		"written for the runtime": {[]Request{handler("kata"), handler("kata"), handler("runc"), wantFor("ns", nil)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := setup(0)
				var wg sync.WaitGroup
				for _, r := range c.wants {
					wg.Go(func() {
						if _, err := p.Ensure(t.Context(), r); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if len(f.pulls) != c.pulls {
					t.Errorf("%d pulls, want %d", len(f.pulls), c.pulls)
				}
			})
		})
	}
}

// TestAnImageThatANamespaceMayNotHaveIsNotGotByPullingWithOthers: CRI-O has a policy
// for signatures per namespace.
func TestAnImageThatANamespaceMayNotHaveIsNotGotByPullingWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		f.policy = func(s *runtimeapi.PodSandboxConfig) error {
			if s.GetMetadata().GetNamespace() == "strict" {
				return errors.New("SignatureValidationFailed: no signature")
			}
			return nil
		}
		errs := map[string]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, namespace := range []string{"lax", "strict"} {
			wg.Go(func() {
				_, err := p.Ensure(t.Context(), wantFor(namespace, nil))
				mu.Lock()
				defer mu.Unlock()
				errs[namespace] = err
			})
			synctest.Wait()
		}
		wg.Wait()
		if errs["lax"] != nil || errs["strict"] == nil || !strings.Contains(errs["strict"].Error(), "no signature") {
			t.Errorf("errors %v", errs)
		}
	})
}

func TestTheKeyOfAPullIsShortHoweverLongAnnotationsAre(t *testing.T) {
	r := wantFor("ns", map[string]string{"io.containerd.x": strings.Repeat("x", 1<<20)})
	if k := key(r, "a:1", nil); len(k) > 64 {
		t.Errorf("the key of a pull has %d bytes", len(k))
	}
}

// What the registry had when a pull began that takes an hour is not what a pod gets that
// asks later, and each time.
func TestWhoAsksEachTimeJoinsNoPullThatBeganLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := setup(0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, c := range []struct {
			policy v1.PullPolicy
			after  time.Duration
			pulls  int
		}{
			{v1.PullAlways, 0, 1},
			{v1.PullAlways, joinWithin, 1},
			{v1.PullIfNotPresent, time.Minute, 1},
			{v1.PullAlways, time.Minute, 2},
			{v1.PullAlways, time.Second, 2},
		} {
			time.Sleep(c.after)
			wg.Go(func() {
				_, _ = p.Ensure(ctx, Request{Pod: &v1.Pod{}, Container: "c", Image: "hung:1", Policy: c.policy})
			})
			synctest.Wait()
			if f.mu.Lock(); len(f.pulls) != c.pulls {
				t.Errorf("%s, %v later: %d pulls, want %d", c.policy, c.after, len(f.pulls), c.pulls)
			}
			f.mu.Unlock()
		}
		cancel()
		wg.Wait()
		if synctest.Wait(); f.running != 0 || len(p.pulls) != 0 {
			t.Errorf("%d pulls go on that nobody wants, %d are kept", f.running, len(p.pulls))
		}
	})
}
