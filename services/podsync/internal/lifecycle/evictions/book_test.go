package evictions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

var (
	start = time.Unix(1_000_000, 0)
	short = Short{v1.NodeMemoryPressure: {}}
)

// seen is an eviction that this process has seen, of a pod of web.
func seen(pod string, at time.Time) Eviction {
	return Eviction{
		Pod: types.UID(pod), Controller: Controller{UID: "web"}, Name: "ReplicaSet web", Resource: "memory", Condition: v1.NodeMemoryPressure, End: at, Witnessed: true,
	}
}

// evictedAt is a book of evictions at so many seconds.
func evictedAt(seconds ...int) (*Book, time.Time) {
	b, at := &Book{}, start
	b.Told(short)
	for i, s := range seconds {
		at = start.Add(time.Duration(s) * time.Second)
		b.Add(seen(fmt.Sprint("p", i), at), at)
	}
	return b, at
}

func TestTheBackoffBeginsWithTheSecondEvictionDoublesAndIsForgotten(t *testing.T) {
	for _, c := range []struct {
		evicted []int
		waits   time.Duration
	}{
		{nil, 0},
		{[]int{0}, 0},
		{[]int{0, 1}, 10 * time.Second},
		{[]int{0, 1, 20}, 20 * time.Second},
		{[]int{0, 1, 20, 50}, 40 * time.Second},
		{[]int{0, 1, 2, 3, 4}, 80 * time.Second},
		{[]int{0, 1, 2, 3, 4, 5}, 160 * time.Second},
		{[]int{0, 1, 2, 3, 4, 5, 6}, 5 * time.Minute},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 5 * time.Minute},
		{[]int{5, 3, 1, 0}, 40*time.Second + 5*time.Second}, // told in another order: from the last one's end
		{[]int{0, 1, 2, 602}, 0},
		{[]int{0, 1, 2, 602, 603}, 10 * time.Second},
	} {
		b, last := evictedAt(c.evicted...)
		got, waits := b.Of(podOf("next", "web"), short, last)
		if waits != (c.waits > 0) || waits && got.Until.Sub(last) != c.waits {
			t.Errorf("evicted at %v: %v, %v, %+v; want %v", c.evicted, waits, got.Until.Sub(last), got, c.waits)
		}
		if waits {
			if _, still := b.Of(podOf("next", "web"), short, got.Until); still {
				t.Errorf("evicted at %v: it waits when that is over", c.evicted)
			}
		}
	}
}

// Who makes pods names their owners: pods of a namespace that are evicted, and say that
// another namespace's controller made them, hold up none of that.
func TestPodsOfAnotherNamespaceThatNameAControllerDoNotHoldItUp(t *testing.T) {
	b, now := &Book{}, start
	b.Told(short)
	for i := range 5 {
		forger := podOf(fmt.Sprint("p", i), "web")
		forger.Namespace = "attacker"
		st := &v1.PodStatus{Phase: v1.PodFailed, Reason: reasonEvicted, Message: lowOn + "memory. ", Conditions: []v1.PodCondition{disrupted(now)}}
		e, is := Of(forger, st)
		if !is || !b.Add(e, now) {
			t.Fatalf("the eviction does not count: %+v", e)
		}
	}
	next := podOf("next", "web")
	next.Namespace = "shop"
	if got, waits := b.Of(next, short, now); waits {
		t.Errorf("a pod of another namespace waits: %+v", got)
	}
	next.Namespace = "attacker"
	if _, waits := b.Of(next, short, now); !waits {
		t.Error("one of the same namespace does not wait")
	}
}

func TestWhoIsNotConcernedDoesNotWait(t *testing.T) {
	b, now := evictedAt(0, 1, 2)
	critical, mirror := podOf("a", "web"), podOf("b", "web")
	highest := int32(podutil.CriticalPriority)
	critical.Spec.Priority, mirror.Annotations = &highest, map[string]string{podutil.AnnotationMirror: "x"}
	for name, pod := range map[string]*v1.Pod{"of another controller": podOf("c", "other"), "of none": {}, "critical": critical, "a mirror": mirror} {
		if got, waits := b.Of(pod, short, now); waits {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, waits := b.Of(podOf("d", "web"), Short{v1.NodeDiskPressure: {}}, now); waits {
		t.Errorf("while the node is short of something else: %+v", got)
	}
}

func TestWhatWasEvictedIsForgottenWhenTheNodeIsShortOfItNoMore(t *testing.T) {
	b, now := evictedAt(0, 1, 2)
	b.Told(Short{v1.NodeMemoryPressure: {}, v1.NodeDiskPressure: {}})
	if _, waits := b.Of(podOf("next", "web"), short, now); !waits {
		t.Error("it is forgotten while the node is short of it")
	}
	b.Told(Short{v1.NodeDiskPressure: {}})
	b.Told(short)
	if got, waits := b.Of(podOf("next", "web"), short, now); waits {
		t.Errorf("once more short: %+v", got)
	}
	// What is told before its condition is counts for the condition that comes.
	b = &Book{}
	b.Told(Short{})
	b.Add(seen("a", now), now)
	b.Add(seen("b", now), now)
	b.Told(short)
	if _, waits := b.Of(podOf("next", "web"), short, now); !waits {
		t.Error("what was evicted before the condition was told does not count")
	}
}

// The Evicted pods that a process finds at its start may be of a shortage that is over.
func TestWhatWasEvictedBeforeTheConditionBeganDoesNotCountUnlessItWasSeen(t *testing.T) {
	b, now := &Book{}, start.Add(time.Minute)
	for i, ago := range []time.Duration{5 * time.Minute, 4 * time.Minute, time.Second} {
		pod := evictedPod(fmt.Sprint("p", i), "web", lowMemory, now.Add(-ago))
		e, _ := Of(pod, &pod.Status)
		if !b.Add(e, now) || b.Add(e, now) {
			t.Errorf("%s is to be news once", pod.Name)
		}
	}
	since := Short{v1.NodeMemoryPressure: now.Add(-time.Minute)}
	if got, waits := b.Of(podOf("next", "web"), since, now); waits {
		t.Errorf("%+v", got)
	}
	b.Add(seen("q", now.Add(-2*time.Minute)), now)
	if got, waits := b.Of(podOf("next", "web"), since, now); !waits || got.Evicted != 2 {
		t.Errorf("with one that was seen: %+v, %v", got, waits)
	}
	if got, waits := b.Of(podOf("next", "web"), short, now); !waits || got.Evicted != 4 {
		t.Errorf("where the Node does not say since when: %+v, %v", got, waits)
	}
}

func TestAnEndInTheFutureIsNow(t *testing.T) {
	b := &Book{}
	b.Add(seen("a", start.Add(time.Hour)), start)
	b.Add(seen("b", start.Add(2*time.Hour)), start)
	if got, waits := b.Of(podOf("next", "web"), short, start); !waits || got.Until.Sub(start) != 10*time.Second {
		t.Errorf("%+v, %v", got, waits)
	}
}

func TestTheBookStaysSmall(t *testing.T) {
	b := &Book{}
	for i := range 10 * mostKept {
		at := start.Add(time.Duration(i) * time.Millisecond)
		b.Add(seen(fmt.Sprint("p", i), at), at)
	}
	if n := len(b.by[Controller{UID: "web"}]); n != mostKept {
		t.Errorf("%d are kept", n)
	}
	later := start.Add(time.Hour)
	other := seen("x", later)
	other.Controller.UID = "other"
	b.Add(other, later)
	if len(b.by) != 1 || b.by[Controller{UID: "other"}] == nil {
		t.Errorf("an hour later there are %d controllers", len(b.by))
	}
	if b.Add(seen("old", later.Add(-forgetting)), later) {
		t.Error("what is too old is news")
	}
}

func TestTheWordsSayHowLongHowManyOfWhomAndWhy(t *testing.T) {
	b, now := evictedAt(0, 1, 2)
	disk := seen("d", now)
	disk.Resource, disk.Condition = "inodes", v1.NodeDiskPressure
	b.Add(disk, now)
	got, _ := b.Of(podOf("next", "web"), short, now)
	const want = "Back-off starting pod for 20s: the node evicted 3 pods of ReplicaSet web because it was low on memory, and still has MemoryPressure. It starts at once when that is over."
	if text := got.Event(now); text != want {
		t.Errorf("%s", text)
	}
	got, _ = b.Of(podOf("next", "web"), Short{v1.NodeMemoryPressure: {}, v1.NodeDiskPressure: {}}, now)
	if text := got.Reason(); got.Evicted != 4 || !strings.Contains(text, "low on inodes and memory, and still has DiskPressure and MemoryPressure") {
		t.Errorf("%s", text)
	}
}

func TestWhileItIsNotKnownWhatTheNodeIsShortOfItMayBe(t *testing.T) {
	b, now := evictedAt(0, 1)
	b.Told(nil)
	got, waits := b.Of(podOf("next", "web"), nil, now)
	if !waits || !strings.Contains(got.Reason(), "and it is not known yet whether it still has MemoryPressure") {
		t.Errorf("%+v, %v", got, waits)
	}
	b.Told(Short{})
	if got, waits := b.Of(podOf("next", "web"), Short{}, now); waits {
		t.Errorf("once it is known: %+v", got)
	}
}
