package mirror

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type sink struct{}

func (sink) Set(*v1.Pod, string)      {}
func (sink) Remove(types.UID, string) {}
func (sink) Doubt(string, bool)       {}
func (sink) Ready(string)             {}

// bench is a Keeper that follows a fake apiserver through a real source.
type bench struct {
	*testing.T
	api    *fakeapiserver.Server
	health *health.Tracker
	k      *Keeper

	mu      sync.Mutex
	node    *v1.Node
	changed []types.UID
	// fault hits requests; nil hits none.
	fault func(fakeapiserver.Request) fakeapiserver.Fault
}

func (b *bench) setFault(fault func(fakeapiserver.Request) fakeapiserver.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

func (b *bench) faultOf(q fakeapiserver.Request) fakeapiserver.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		return fakeapiserver.Fault{}
	}
	return b.fault(q)
}

func start(t *testing.T, prepare func(b *bench)) *bench {
	b := &bench{T: t, health: health.NewTracker(logr.Discard()), node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}}
	b.api = fakeapiserver.New(fakeapiserver.Config{Faults: b.faultOf})
	b.k = New(Config{NodeName: "n"}, Deps{Client: b.api.Client(), Health: b.health, Node: func(context.Context) (*v1.Node, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.node == nil {
			return nil, errors.New("not known yet")
		}
		return b.node, nil
	}, OnChange: func(uid types.UID) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed = append(b.changed, uid)
	}})
	if prepare != nil {
		prepare(b)
	}
	src, err := source.New(source.Config{NodeName: "n"}, source.Deps{Client: b.api.Client(), Mirrors: keepStatic{b.k}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = src.Run(ctx, sink{}) })
	all.Go(func() { _ = b.k.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait(); b.api.Close() })
	synctest.Wait()
	return b
}

// keepStatic lets the test say when the static pods are ready.
type keepStatic struct{ *Keeper }

func (keepStatic) StaticReady() {}

func static(uid types.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default", UID: uid, Annotations: map[string]string{
			podutil.AnnotationHash: string(uid), podutil.AnnotationSource: source.File,
		}},
		Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
}

func (b *bench) mirror() *v1.Pod { return b.api.Pod("default", "web-n") }

func TestAStaticPodGetsAMirrorThatTheNodeOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		begin := time.Now()
		b.k.SetStatic(static("one"))
		synctest.Wait()
		got := b.mirror()
		if got == nil || time.Since(begin) != 0 {
			t.Fatalf("mirror %v after %v", got, time.Since(begin))
		}
		if got.Annotations[podutil.AnnotationMirror] != "one" || len(got.OwnerReferences) != 1 ||
			got.OwnerReferences[0].UID != "node-uid" || !*got.OwnerReferences[0].Controller || got.UID == "one" {
			t.Fatalf("mirror: %+v", got.ObjectMeta)
		}
		if m, ok := b.k.Mirror("one"); !ok || m.UID != got.UID {
			t.Fatalf("Mirror: %v %v", m, ok)
		}
		if uid, ok := b.k.StaticUID(got.UID); !ok || uid != "one" {
			t.Fatalf("StaticUID: %v %v", uid, ok)
		}
		if len(b.changed) == 0 || b.changed[0] != "one" {
			t.Fatalf("told: %v", b.changed)
		}
		time.Sleep(time.Hour)
		if n := b.api.Calls()["create pods"]; n != 1 {
			t.Fatalf("%d creations", n)
		}
	})
}

func TestAChangedStaticPodGetsANewMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.SetStatic(static("one"))
		synctest.Wait()
		first := b.mirror().UID
		b.k.RemoveStatic("one")
		b.k.SetStatic(static("two"))
		synctest.Wait()
		if _, ok := b.k.Mirror("two"); ok || b.mirror().UID != first {
			t.Fatal("the mirror changed while the old pod still runs")
		}
		if m, ok := b.k.Mirror("one"); !ok || m.UID != first {
			t.Fatal("the old pod's status has no object any more though it still runs")
		}
		b.k.Ended("one")
		synctest.Wait()
		if got := b.mirror(); got == nil || got.UID == first || got.Annotations[podutil.AnnotationMirror] != "two" {
			t.Fatalf("mirror: %+v", got)
		}
		if _, ok := b.k.Mirror("one"); ok {
			t.Fatal("the old static pod still has a mirror")
		}
	})
}

// TestAMirrorGoesThoughAnApiserverThatHasJustStartedKnowsNothingOfIt: its admission
// looks into a cache that is not filled yet, and says that there is no such pod.
func TestAMirrorGoesThoughAnApiserverThatHasJustStartedKnowsNothingOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.SetStatic(static("one"))
		synctest.Wait()
		first := b.mirror().UID
		b.setFault(func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "delete" {
				return fakeapiserver.Fault{Status: http.StatusNotFound}
			}
			return fakeapiserver.Fault{}
		})
		b.k.RemoveStatic("one")
		b.k.SetStatic(static("two"))
		b.k.Ended("one")
		synctest.Wait()
		if got := b.mirror(); got == nil || got.UID != first {
			t.Fatalf("the fault does not hold the mirror: %+v", got)
		}
		time.Sleep(10 * time.Second)
		if n := b.api.Calls()["delete pods"]; n > 10 {
			t.Errorf("%d deletions in ten seconds", n)
		}
		b.setFault(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.mirror(); got == nil || got.UID == first || got.Annotations[podutil.AnnotationMirror] != "two" {
			t.Fatalf("the mirror of the pod before stays: %+v", got)
		}
		if m, ok := b.k.Mirror("two"); !ok || m.UID != b.mirror().UID {
			t.Errorf("Mirror: %v %v", m, ok)
		}
	})
}

func TestAMirrorThatCannotShowThePodAnyMoreIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.SetStatic(static("one"))
		synctest.Wait()
		first := b.mirror().UID
		b.k.Renew("another")
		synctest.Wait()
		if b.mirror().UID != first {
			t.Fatal("the mirror was replaced for another pod's sake")
		}
		b.k.Renew("one")
		synctest.Wait()
		second := b.mirror()
		if second == nil || second.UID == first || second.Annotations[podutil.AnnotationMirror] != "one" {
			t.Fatalf("mirror: %+v", second)
		}
		if m, ok := b.k.Mirror("one"); !ok || m.UID != second.UID || b.changed[len(b.changed)-1] != "one" {
			t.Fatalf("Mirror: %v %v, told: %v", m, ok, b.changed)
		}
		time.Sleep(time.Hour)
		if n := b.api.Calls()["create pods"]; n != 2 {
			t.Fatalf("%d creations, want 2", n)
		}
		b.k.RemoveStatic("one")
		b.k.Renew("one")
		synctest.Wait()
		if got := b.mirror(); got == nil || got.UID != second.UID {
			t.Fatalf("the mirror of a pod that is leaving was replaced: %+v", got)
		}
	})
}

func TestAMirrorThatSomebodyDeletesComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.SetStatic(static("one"))
		synctest.Wait()
		for _, grace := range []int64{30, 0} {
			first := b.mirror().UID
			if err := b.api.Admin().CoreV1().Pods("default").Delete(t.Context(), "web-n", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := b.mirror(); got == nil || got.UID == first || got.DeletionTimestamp != nil {
				t.Fatalf("grace %d: mirror %+v", grace, got)
			}
		}
	})
}

func TestAnOrphanGoesOnlyWhenAllIsKnownAndItsPodHasEnded(t *testing.T) {
	for name, runs := range map[string]bool{"its pod is gone": false, "its pod still runs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, func(b *bench) {
					orphan := static("old")
					orphan.Annotations[podutil.AnnotationMirror] = "old"
					orphan.UID = ""
					if _, err := b.api.Admin().CoreV1().Pods("default").Create(t.Context(), orphan, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				})
				stays := func(why string) {
					t.Helper()
					time.Sleep(time.Minute)
					if b.mirror() == nil {
						t.Fatal(why)
					}
				}
				stays("deleted before the static pods were read")
				b.k.StaticReady()
				stays("deleted before it was known what runs")
				if runs {
					b.k.Orphan("old")
				}
				b.k.AllKnown()
				if runs {
					stays("deleted while its containers run")
					b.k.Ended("old")
				}
				synctest.Wait()
				if b.mirror() != nil {
					t.Fatal("the orphan stayed")
				}
			})
		})
	}
}

func TestTheMirrorOfARemovedStaticPodStaysUntilThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.StaticReady()
		b.k.AllKnown()
		b.k.SetStatic(static("one"))
		synctest.Wait()
		first := b.mirror().UID
		b.k.RemoveStatic("one")
		time.Sleep(time.Minute)
		if m, ok := b.k.Mirror("one"); !ok || m.UID != first || b.mirror() == nil {
			t.Fatal("the mirror went before the pod had ended")
		}
		b.k.Ended("another")
		b.k.SetStatic(static("one")) // it is wanted again, and the first end comes late
		b.k.Ended("one")
		time.Sleep(time.Minute)
		if b.mirror() == nil {
			t.Fatal("a wanted pod lost its mirror")
		}
		b.k.RemoveStatic("one")
		b.k.Ended("one")
		synctest.Wait()
		if b.mirror() != nil {
			t.Fatal("the mirror stayed after the end")
		}
	})
}

func TestADeletedMirrorOfALeavingPodIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, nil)
		b.k.SetStatic(static("one"))
		synctest.Wait()
		b.k.RemoveStatic("one")
		if err := b.api.Admin().CoreV1().Pods("default").Delete(t.Context(), "web-n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := b.mirror(); got != nil {
			t.Fatalf("mirror: %+v", got)
		}
		b.k.Ended("one")
		time.Sleep(time.Minute)
		if n := b.api.Calls()["create pods"]; n != 1 {
			t.Fatalf("%d creations", n)
		}
	})
}

func TestAMirrorOfBeforeARestartIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before types.UID
		b := start(t, func(b *bench) {
			old := static("one")
			old.Annotations[podutil.AnnotationMirror] = "one"
			old.UID = ""
			made, err := b.api.Admin().CoreV1().Pods("default").Create(t.Context(), old, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before = made.UID
			b.k.SetStatic(static("one"))
			b.k.StaticReady()
		})
		time.Sleep(time.Minute)
		if got := b.mirror(); got == nil || got.UID != before {
			t.Fatalf("mirror: %+v", got)
		}
	})
}

func TestWithoutTheNodeObjectAMirrorWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(b *bench) { b.node = nil })
		b.k.SetStatic(static("one"))
		time.Sleep(time.Minute)
		if b.mirror() != nil {
			t.Fatal("made without an owner")
		}
		b.mu.Lock()
		b.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		b.mu.Unlock()
		begin := time.Now()
		b.k.NodeChanged()
		synctest.Wait()
		if b.mirror() == nil || time.Since(begin) != 0 {
			t.Fatal("not made when the node became known")
		}
	})
}

// Who removes the manifest whose mirror cannot be made has mended it.
func TestAProblemIsShownAndEndsWithTheStaticPodThatHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(b *bench) { b.node = nil })
		b.k.SetStatic(static("one"))
		time.Sleep(time.Minute)
		if ok, _ := b.health.Ready(); ok {
			t.Error("that a mirror cannot be made is not told")
		}
		b.k.RemoveStatic("one")
		b.k.Ended("one")
		synctest.Wait()
		if ok, _ := b.health.Ready(); !ok {
			t.Errorf("after the static pod is gone: %+v", b.health.Dependencies())
		}
	})
}

func TestAProblemEndsWhenTheMirrorIsSeenAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(b *bench) { b.node = nil })
		b.k.SetStatic(static("one"))
		time.Sleep(time.Minute)
		made := static("one")
		made.UID, made.Annotations[podutil.AnnotationMirror] = "", "one"
		if _, err := b.api.Admin().CoreV1().Pods("default").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if ok, _ := b.health.Ready(); !ok {
			t.Errorf("%+v", b.health.Dependencies())
		}
	})
}

func TestAnotherPodOfTheNameIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(b *bench) {
			other := static("")
			other.Annotations = nil
			if _, err := b.api.Admin().CoreV1().Pods("default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		b.k.SetStatic(static("one"))
		time.Sleep(time.Minute)
		if got := b.mirror(); got == nil || podutil.Mirror(got) || b.api.Calls()["delete pods"] != 0 {
			t.Fatalf("the other pod: %+v", got)
		}
		if n := b.api.Calls()["create pods"]; n < 2 || n > 20 {
			t.Fatalf("%d attempts in a minute", n)
		}
	})
}

func TestWithoutAnApiserverNothingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := New(Config{NodeName: "n"}, Deps{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		k.SetStatic(static("one"))
		k.StaticReady()
		synctest.Wait()
		if _, ok := k.Mirror("one"); ok {
			t.Fatal("a mirror out of nothing")
		}
		k.RemoveStatic("one")
		cancel()
		<-done
	})
}

func TestWhatIsNoAnswerOfAnApiserverIsNoMirror(t *testing.T) {
	quiet := utilruntime.ErrorHandlers // one of them waits, by the time outside the bubble
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = quiet })
	for _, kind := range fakeapiserver.AllNonsense() {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, nil)
			b.setFault(func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Nonsense: &kind} })
			b.k.SetStatic(static("one"))
			time.Sleep(time.Minute)
			if ok, _ := b.health.Ready(); ok {
				t.Errorf("%s: that a mirror cannot be made is not told", kind.Name)
			}
			b.setFault(nil)
			time.Sleep(time.Minute)
			mirror, known := b.k.Mirror("one")
			if is := b.mirror(); is == nil || !known || is.UID != mirror.UID {
				t.Errorf("%s: a minute later the mirror is %v, known %v", kind.Name, is, known)
			}
		})
	}
}
