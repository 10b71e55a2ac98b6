package objects

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
)

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("m%04d", i))
	}
	return list
}

func TestAPodThatNamesManyObjectsLeavesTheApiserverToOthers(t *testing.T) {
	var asked atomic.Int32
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Namespace != "ns" {
			return fakeapiserver.Fault{}
		}
		asked.Add(1)
		return fakeapiserver.Fault{Delay: time.Second}
	}}
	inBubble(t, cfg, func(t *testing.T, b *bench) {
		all := names(100)
		b.store.Hold(podWith("p1", all...))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if n := asked.Load(); n == 0 || n > namespacelimit.Most {
			t.Errorf("%d calls for one namespace at once, want at most %d", n, namespacelimit.Most)
		}
		other := podWith("p2", "x")
		other.Namespace = "other"
		b.store.Hold(other)
		began := time.Now()
		_, err := b.store.ConfigMap(t.Context(), "other", "x")
		if took := time.Since(began); err == nil || took > 100*time.Millisecond {
			t.Errorf("an object of another namespace: %v after %s", err, took)
		}
		time.Sleep(time.Minute)
		for _, name := range all {
			began := time.Now()
			if got := b.value(t, name); got != `configmap "`+name+`" not found` || time.Since(began) > 0 {
				t.Fatalf("%s: %s after %s", name, got, time.Since(began))
			}
		}
		b.store.Release("p1")
		b.store.Release("p2")
		synctest.Wait()
		if n := b.store.asking.Namespaces(); n > 1 { // the Node's own, maybe
			t.Errorf("%d namespaces are remembered", n)
		}
	})
}

func TestOfAPodThatNamesThousandsOfObjectsSomeAreWatchedAndAllAreRead(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		all := names(mostWatched + 200)
		last := all[len(all)-1]
		b.configMap(t, last, "1")
		b.store.Hold(podWith("p1", all...))
		b.store.mu.Lock()
		n := len(b.store.entries)
		b.store.mu.Unlock()
		if n > mostWatched+1 { // the Node
			t.Errorf("%d objects are watched", n)
		}
		if got := b.value(t, last); got != "1" {
			t.Errorf("one that is not watched: %s", got)
		}
		b.store.Hold(podWith("p1", all...))
		b.store.Release("p1")
	})
}

// TestReadsOfOneNamespaceLeaveTheApiserverToOthers: what is not watched is read by
// each volume of each pod when it is made.
func TestReadsOfOneNamespaceLeaveTheApiserverToOthers(t *testing.T) {
	var now, most atomic.Int32
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Namespace != "ns" {
			return fakeapiserver.Fault{}
		}
		most.Store(max(most.Load(), now.Add(1)))
		time.AfterFunc(900*time.Millisecond, func() { now.Add(-1) }) // before the next one begins
		return fakeapiserver.Fault{Delay: time.Second}
	}}
	inBubble(t, cfg, func(t *testing.T, b *bench) {
		var reads sync.WaitGroup
		for _, name := range names(40) {
			reads.Go(func() { _, _ = b.store.ConfigMap(t.Context(), "ns", name) })
		}
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		_, err := b.store.ConfigMap(t.Context(), "other", "x")
		if took := time.Since(began); err == nil || took > 100*time.Millisecond {
			t.Errorf("an object of another namespace: %v after %s", err, took)
		}
		reads.Wait()
		if n := most.Load(); n == 0 || n > namespacelimit.Most {
			t.Errorf("%d reads for one namespace at once, want at most %d", n, namespacelimit.Most)
		}
	})
}

// TestOfANamespaceSomeObjectsAreWatchedHoweverManyPodsNameThem: a hundred pods name a
// hundred thousand, whether they are there or not, and each watch takes memory here and
// at the apiserver.
func TestOfANamespaceSomeObjectsAreWatchedHoweverManyPodsNameThem(t *testing.T) {
	server := fakeapiserver.New(fakeapiserver.Config{})
	defer server.Close()
	s := New(Config{}, Deps{Client: server.Client()}) // its watches would begin with Run
	pod := func(i, objects int) *v1.Pod {
		var list []string
		for j := range objects {
			list = append(list, fmt.Sprintf("m%d-%d", i, j))
		}
		return podWith(fmt.Sprint("p", i), list...)
	}
	watched := func(p *v1.Pod) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pods[p.UID])
	}
	const full = mostOfOne / mostWatched
	for i := range full {
		if s.Hold(pod(i, mostWatched)); watched(pod(i, 0)) != mostWatched {
			t.Fatalf("pod %d: %d objects are watched", i, watched(pod(i, 0)))
		}
	}
	last, other, shared := pod(full, 10), pod(full+1, 10), pod(0, 10)
	other.Namespace, shared.UID = "other", "shared"
	for p, want := range map[*v1.Pod]int{last: 0, other: 10, shared: 10} {
		if s.Hold(p); watched(p) != want {
			t.Errorf("pod %s: %d objects are watched, want %d", p.UID, watched(p), want)
		}
	}
	s.Release(pod(1, 0).UID)
	if s.Hold(last); watched(last) != 10 {
		t.Errorf("once there is room: %d objects are watched", watched(last))
	}
	for _, uid := range []types.UID{"p0", "p2", "p3", last.UID, other.UID, "shared"} {
		s.Release(uid)
	}
	if len(s.entries)+len(s.held)+len(s.pods) > 0 {
		t.Errorf("%d objects, %v and %d pods are left", len(s.entries), s.held, len(s.pods))
	}
}
