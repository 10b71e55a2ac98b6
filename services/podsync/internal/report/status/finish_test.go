package status

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestFinishDeletesAfterTheFinalStatusOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		b := start(t, fakeapiserver.Config{Faults: func(r fakeapiserver.Request) fakeapiserver.Fault {
			if r.Verb == "patch" && failures > 0 {
				failures--
				return fakeapiserver.Fault{Status: 503}
			}
			return fakeapiserver.Fault{}
		}}, nil)
		pod := b.create("a")
		st := running("10.0.0.1")
		st.Phase = v1.PodSucceeded
		b.w.Set(pod, st)
		if err := b.w.Finish(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if b.api.Pod("default", "a") != nil {
			t.Fatal("the object is still there")
		}
		history := b.api.StatusHistory("default", "a")
		if len(history) != 1 || history[0].New.(*v1.Pod).Status.Phase != v1.PodSucceeded {
			t.Fatalf("status writes: %d", len(history))
		}
		b.w.Forget(pod.UID)
	})
}

func TestAnotherPodOfTheNameIsNeverTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		old := b.create("a").DeepCopy()
		old.UID = "before"
		b.w.Set(old, running("10.0.0.1"))
		if err := b.w.Finish(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		now := b.api.Pod("default", "a")
		if now == nil || now.Status.Phase == v1.PodRunning {
			t.Fatalf("the new pod was touched: %+v", now)
		}
	})
}

// TestAPodIsNotOverBecauseAnApiserverThatHasJustStartedKnowsNothingOfIt: its
// admission looks into a cache that is not filled yet. Nobody would delete it later.
func TestAPodIsNotOverBecauseAnApiserverThatHasJustStartedKnowsNothingOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := true
		b := start(t, fakeapiserver.Config{Faults: func(r fakeapiserver.Request) fakeapiserver.Fault {
			if r.Verb == "delete" && empty {
				return fakeapiserver.Fault{Status: 404}
			}
			return fakeapiserver.Fault{}
		}}, nil)
		pod := b.create("a")
		if err := b.w.Finish(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "it is there though") {
			t.Fatalf("the pod is over though it is there: %v", err)
		}
		empty = false
		if err := b.w.Finish(t.Context(), pod); err != nil || b.api.Pod("default", "a") != nil {
			t.Fatalf("the pod is there: %v", err)
		}
		if err := b.w.Finish(t.Context(), pod); err != nil {
			t.Errorf("a pod that is really gone: %v", err)
		}
	})
}

func TestFinishGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		b.api.Partition(fakeapiserver.Blackhole)
		b.w.Set(pod, running("10.0.0.1"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := b.w.Finish(ctx, pod); err == nil || !strings.Contains(err.Error(), "final status") {
			t.Fatalf("error %v", err)
		}
	})
}

func TestWithoutAnApiserverAStatusStaysOnTheNodeAndFinishDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{}, Deps{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.Run(ctx) }()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "1"}}
		w.Set(pod, running("10.0.0.1"))
		synctest.Wait()
		if err := w.Finish(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if st, ok := w.Get("1"); !ok || st.Phase != v1.PodRunning {
			t.Fatalf("Get: %v %v", st, ok)
		}
	})
}

func TestAnObjectIsGoneByTheReasonAndNotByItsName(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	modified := errors.New("the object has been modified; please apply your changes to the latest version and try again")
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "metadata.uid", field.ErrorList{field.Invalid(path, "x", "field is immutable")})
	}
	for name, c := range map[string]struct {
		err  error
		gone bool
	}{
		"another of the name":       {apierrors.NewConflict(pods, "web", errors.New("Precondition failed: UID in precondition: a, UID in object meta: b")), true},
		"none of the name":          {apierrors.NewConflict(pods, "web", errors.New("uid mismatch: the provided object specified uid a, and no existing object was found")), true},
		"it was written meanwhile":  {apierrors.NewConflict(pods, "squid", modified), false},
		"another, by a patch":       {invalid(field.NewPath("metadata", "uid")), true},
		"something else is invalid": {invalid(field.NewPath("status", "phase")), false},
		"not found":                 {apierrors.NewNotFound(pods, "web"), true},
	} {
		if got := isGone(c.err); got != c.gone {
			t.Errorf("%s: %t (%v)", name, got, c.err)
		}
	}
}

func TestADeletionThatNoApiserverAnsweredIsMadeAgain(t *testing.T) {
	for _, kind := range fakeapiserver.AllNonsense() {
		synctest.Test(t, func(t *testing.T) {
			var nonsense atomic.Bool
			b := start(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
				if nonsense.Load() && q.Verb == "delete" {
					return fakeapiserver.Fault{Nonsense: &kind}
				}
				return fakeapiserver.Fault{}
			}}, nil)
			pod := b.create("a")
			b.w.Set(pod, running("10.0.0.1"))
			synctest.Wait()
			lists := b.api.Calls()["list pods"]
			nonsense.Store(true)
			if err := b.w.Finish(t.Context(), pod); err == nil || b.api.Pod("default", "a") == nil {
				t.Errorf("%s: finished", kind.Name)
			}
			if got := b.api.Calls()["list pods"] - lists; got != 1 {
				t.Errorf("%s: looked %d times", kind.Name, got)
			}
			nonsense.Store(false)
			if err := b.w.Finish(t.Context(), pod); err != nil || b.api.Pod("default", "a") != nil {
				t.Errorf("%s: %v", kind.Name, err)
			}
			if got := b.api.Calls()["list pods"] - lists; got != 1 {
				t.Errorf("%s: what was answered in order is looked at: %d lists", kind.Name, got)
			}
		})
	}
}
