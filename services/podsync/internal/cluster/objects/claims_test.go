package objects

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func claimKey(name string) Key { return Key{Kind: PersistentVolumeClaim, Namespace: "ns", Name: name} }

func (b *bench) claim(t *testing.T, name string) *v1.PersistentVolumeClaim {
	t.Helper()
	claim, err := b.admin.CoreV1().PersistentVolumeClaims("ns").Create(t.Context(),
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// asked counts the reads of claims and volumes.
func asked(of *atomic.Int32, first int32) fakeapiserver.Config {
	return fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Resource != "persistentvolumeclaims" && q.Resource != "persistentvolumes" {
			return fakeapiserver.Fault{}
		}
		if of.Add(1) <= first {
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}}
}

func TestWhoAwaitsAClaimIsToldOnceWhenItChangesAndNobodyAsksAnyMore(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 0), func(t *testing.T, b *bench) {
		if _, err := b.store.Claim(t.Context(), "p1", "ns", "c"); !apierrors.IsNotFound(err) {
			t.Fatalf("a claim that is not there: %v", err)
		}
		b.store.Await("p1", "ns", claimKey("c"), nil)
		time.Sleep(time.Second)
		if got := b.changes(); got != nil {
			t.Errorf("told %v though nothing changed", got)
		}
		claim := b.claim(t, "c")
		b.store.Await("p2", "ns", claimKey("c"), claim)
		time.Sleep(time.Second)
		if got := b.changes(); !slices.Equal(got, []string{"c for p1"}) {
			t.Errorf("told %v", got)
		}
		claim.Spec.VolumeName = "pv"
		if _, err := b.admin.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := b.changes(); !slices.Equal(got, []string{"c for p2"}) {
			t.Errorf("told %v", got)
		}
		n.Store(0)
		time.Sleep(time.Hour)
		if n.Load() != 0 {
			t.Errorf("%d reads though nobody awaits anything", n.Load())
		}
	})
}

func TestWhatIsAwaitedForLongIsAskedForRarely(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 0), func(t *testing.T, b *bench) {
		b.store.Await("p1", "ns", claimKey("c"), nil)
		time.Sleep(time.Minute)
		n.Store(0)
		time.Sleep(time.Hour)
		if got := n.Load(); got < 500 || got > 720 {
			t.Errorf("%d reads in an hour, want one in %s", got, mostAsked)
		}
	})
}

// A pod reads its claims anew each time that its volumes are tried again, which may be
// for another of them.
func TestWhatAPodReadsOnceMoreWithoutNewsIsAwaitedAsRarelyAsBefore(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 0), func(t *testing.T, b *bench) {
		claim := b.claim(t, "c")
		b.store.Await("p1", "ns", claimKey("c"), claim)
		time.Sleep(time.Minute)
		n.Store(0)
		const retries = 60
		for range retries {
			if _, err := b.store.Claim(t.Context(), "p1", "ns", "c"); err != nil {
				t.Fatal(err)
			}
			b.store.Await("p1", "ns", claimKey("c"), claim)
			time.Sleep(2 * mostAsked)
		}
		if got := n.Load(); got > 3*retries {
			t.Errorf("%d reads while nothing changed, want %d of the pod's own and one in %v", got, retries, mostAsked)
		}
		was := claim.DeepCopy()
		claim.Spec.VolumeName = "pv"
		claim, err := b.admin.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * mostAsked)
		if got := b.changes(); !slices.Equal(got, []string{"c for p1"}) {
			t.Errorf("told %v", got)
		}
		// What is new is awaited as at first, also by one who saw it change as it read.
		b.store.Await("p1", "ns", claimKey("c"), was)
		time.Sleep(2 * firstAsked)
		if got := b.changes(); !slices.Equal(got, []string{"c for p1"}) {
			t.Errorf("told %v", got)
		}
		b.store.Await("p1", "ns", claimKey("c"), claim)
		_, _ = b.store.Claim(t.Context(), "p1", "ns", "c")
		if b.store.Release("p1"); len(b.store.reread) != 0 {
			t.Errorf("of a pod that is gone is kept: %v", b.store.reread)
		}
	})
}

func TestThousandsOfClaimsOfOneNamespaceAreAskedForNoFasterThanAFew(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 0), func(t *testing.T, b *bench) {
		for _, name := range names(3000) {
			b.store.Await("p", "ns", claimKey(name), nil)
		}
		time.Sleep(time.Minute)
		if got, most := n.Load(), int32(time.Minute/askPause); got > most || got < most/2 {
			t.Errorf("%d reads in a minute, want up to %d", got, most)
		}
		// One of another namespace does not wait for them.
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "other"}}
		if _, err := b.admin.CoreV1().PersistentVolumeClaims("other").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.store.Await("p2", "other", Key{Kind: PersistentVolumeClaim, Namespace: "other", Name: "c"}, nil)
		time.Sleep(2 * firstAsked)
		if got := b.changes(); !slices.Equal(got, []string{"c for p2"}) {
			t.Errorf("told %v", got)
		}
		b.store.Release("p")
		time.Sleep(mostAsked)
		n.Store(0)
		time.Sleep(time.Hour)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		if n.Load() != 0 || len(b.store.waits) != 0 {
			t.Errorf("%d reads for a pod that is gone, and %d namespaces are kept", n.Load(), len(b.store.waits))
		}
	})
}

func TestAReadOfAClaimEndsWhatThePodAwaitsOfIt(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 0), func(t *testing.T, b *bench) {
		b.claim(t, "c")
		b.store.Await("p1", "ns", claimKey("c"), nil)
		b.store.Await("p2", "ns", claimKey("c"), nil)
		if _, err := b.store.Claim(t.Context(), "p1", "ns", "c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := b.changes(); !slices.Equal(got, []string{"c for p2"}) {
			t.Errorf("told %v", got)
		}
	})
}

func TestAVolumeThatTheNodeMayNotReadForAMomentIsReadAllTheSame(t *testing.T) {
	var n atomic.Int32
	inBubble(t, asked(&n, 3), func(t *testing.T, b *bench) {
		if _, err := b.admin.CoreV1().PersistentVolumes().Create(t.Context(),
			&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.Store(0)
		began := time.Now()
		pv, err := b.store.PersistentVolume(t.Context(), "p1", "ns", "pv")
		if err != nil || pv.Name != "pv" {
			t.Fatalf("%v, %v", pv, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestAVolumeThatTheNodeMayNotReadIsAnErrorSoonAndAwaited(t *testing.T) {
	var n atomic.Int32
	cfg := asked(&n, 1<<30)
	inBubble(t, cfg, func(t *testing.T, b *bench) {
		began := time.Now()
		_, err := b.store.PersistentVolume(t.Context(), "p1", "ns", "pv")
		if took := time.Since(began); !apierrors.IsForbidden(err) || took > 2*graphTimeout {
			t.Errorf("%v after %s", err, took)
		}
		b.store.Await("p1", "ns", Key{Kind: PersistentVolume, Name: "pv"}, nil)
		time.Sleep(time.Minute)
		if got := b.changes(); got != nil {
			t.Errorf("told %v though nobody could read it", got)
		}
	})
}

func TestAClaimThatWasAwaitedBeforeTheStoreRunsIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapiserver.New(fakeapiserver.Config{})
		defer server.Close()
		b := &bench{server: server, admin: server.Admin(), store: New(Config{}, Deps{Client: server.Client()})}
		told := make(chan Key, 1)
		b.store.Subscribe(func(key Key, _ []types.UID) { told <- key })
		b.claim(t, "c")
		b.store.Await("p1", "ns", claimKey("c"), nil)
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- b.store.Run(ctx) }()
		if key := <-told; key != claimKey("c") {
			t.Errorf("told of %s", key)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutAnApiserverAClaimIsAnError(t *testing.T) {
	s := New(Config{}, Deps{})
	s.Await("p1", "ns", claimKey("c"), nil)
	if _, err := s.Claim(t.Context(), "p1", "ns", "c"); !errors.Is(err, ErrStandalone) {
		t.Errorf("%v", err)
	}
}
