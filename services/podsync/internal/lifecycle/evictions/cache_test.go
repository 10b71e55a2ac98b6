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

// evictedAt is a cache of evictions at so many seconds.
func evictedAt(seconds ...int) (*Cache, time.Time) {
	c, at := &Cache{}, start
	c.Told(short)
	for i, s := range seconds {
		at = start.Add(time.Duration(s) * time.Second)
		c.Add(seen(fmt.Sprint("p", i), at), at)
	}
	return c, at
}

func TestTheBackoffBeginsWithTheSecondEvictionDoublesAndIsForgotten(t *testing.T) {
	for _, tc := range []struct {
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
		c, last := evictedAt(tc.evicted...)
		got, waits := c.Of(podOf("next", "web"), short, last)
		if waits != (tc.waits > 0) || waits && got.Until.Sub(last) != tc.waits {
			t.Errorf("evicted at %v: %v, %v, %+v; want %v", tc.evicted, waits, got.Until.Sub(last), got, tc.waits)
		}
		if waits {
			if _, still := c.Of(podOf("next", "web"), short, got.Until); still {
				t.Errorf("evicted at %v: it waits when that is over", tc.evicted)
			}
		}
	}
}

func TestWhoIsNotConcernedDoesNotWait(t *testing.T) {
	c, now := evictedAt(0, 1, 2)
	critical, mirror := podOf("a", "web"), podOf("b", "web")
	highest := int32(podutil.CriticalPriority)
	critical.Spec.Priority, mirror.Annotations = &highest, map[string]string{podutil.AnnotationMirror: "x"}
	for name, pod := range map[string]*v1.Pod{"of another controller": podOf("c", "other"), "of none": {}, "critical": critical, "a mirror": mirror} {
		if got, waits := c.Of(pod, short, now); waits {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, waits := c.Of(podOf("d", "web"), Short{v1.NodeDiskPressure: {}}, now); waits {
		t.Errorf("while the node is short of something else: %+v", got)
	}
}

// Whoever may make pods in a namespace writes the UID of anybody's controller into them.
func TestPodsOfAnotherNamespaceHoldNobodyBack(t *testing.T) {
	c, now := evictedAt()
	for _, name := range []string{"a", "b", "c"} {
		pod := evictedPod(name, "web", lowMemory, now)
		pod.Namespace = "attacker"
		e, _ := Of(pod, &pod.Status)
		c.Add(e, now)
	}
	victim, own := podOf("d", "web"), podOf("e", "web")
	victim.Namespace, own.Namespace = "victim", "attacker"
	if got, waits := c.Of(victim, short, now); waits {
		t.Errorf("another namespace's pod waits: %+v", got)
	}
	if got, waits := c.Of(own, short, now); !waits || got.Evicted != 3 {
		t.Errorf("the next one of theirs: %+v, %v", got, waits)
	}
}

func TestWhatWasEvictedIsForgottenWhenTheNodeIsShortOfItNoMore(t *testing.T) {
	c, now := evictedAt(0, 1, 2)
	c.Told(Short{v1.NodeMemoryPressure: {}, v1.NodeDiskPressure: {}})
	if _, waits := c.Of(podOf("next", "web"), short, now); !waits {
		t.Error("it is forgotten while the node is short of it")
	}
	c.Told(Short{v1.NodeDiskPressure: {}})
	c.Told(short)
	if got, waits := c.Of(podOf("next", "web"), short, now); waits {
		t.Errorf("once more short: %+v", got)
	}
	// What is told before its condition is counts for the condition that comes.
	c = &Cache{}
	c.Told(Short{})
	c.Add(seen("a", now), now)
	c.Add(seen("b", now), now)
	c.Told(short)
	if _, waits := c.Of(podOf("next", "web"), short, now); !waits {
		t.Error("what was evicted before the condition was told does not count")
	}
}

// The Evicted pods that a process finds at its start may be of a shortage that is over.
func TestWhatWasEvictedBeforeTheConditionBeganDoesNotCountUnlessItWasSeen(t *testing.T) {
	c, now := &Cache{}, start.Add(time.Minute)
	for i, ago := range []time.Duration{5 * time.Minute, 4 * time.Minute, time.Second} {
		pod := evictedPod(fmt.Sprint("p", i), "web", lowMemory, now.Add(-ago))
		e, _ := Of(pod, &pod.Status)
		if !c.Add(e, now) || c.Add(e, now) {
			t.Errorf("%s is to be news once", pod.Name)
		}
	}
	since := Short{v1.NodeMemoryPressure: now.Add(-time.Minute)}
	if got, waits := c.Of(podOf("next", "web"), since, now); waits {
		t.Errorf("%+v", got)
	}
	c.Add(seen("q", now.Add(-2*time.Minute)), now)
	if got, waits := c.Of(podOf("next", "web"), since, now); !waits || got.Evicted != 2 {
		t.Errorf("with one that was seen: %+v, %v", got, waits)
	}
	if got, waits := c.Of(podOf("next", "web"), short, now); !waits || got.Evicted != 4 {
		t.Errorf("where the Node does not say since when: %+v, %v", got, waits)
	}
}

func TestAnEndInTheFutureIsNow(t *testing.T) {
	c := &Cache{}
	c.Add(seen("a", start.Add(time.Hour)), start)
	c.Add(seen("b", start.Add(2*time.Hour)), start)
	if got, waits := c.Of(podOf("next", "web"), short, start); !waits || got.Until.Sub(start) != 10*time.Second {
		t.Errorf("%+v, %v", got, waits)
	}
}

func TestTheCacheStaysSmall(t *testing.T) {
	c := &Cache{}
	for i := range 10 * mostKept {
		at := start.Add(time.Duration(i) * time.Millisecond)
		c.Add(seen(fmt.Sprint("p", i), at), at)
	}
	if n := len(c.by[Controller{UID: "web"}]); n != mostKept {
		t.Errorf("%d are kept", n)
	}
	later := start.Add(time.Hour)
	other := seen("x", later)
	other.Controller = Controller{UID: "other"}
	c.Add(other, later)
	if len(c.by) != 1 || c.by[other.Controller] == nil {
		t.Errorf("an hour later there are %d controllers", len(c.by))
	}
	if c.Add(seen("old", later.Add(-forgetting)), later) {
		t.Error("what is too old is news")
	}
}

func TestTheWordsSayHowLongHowManyOfWhomAndWhy(t *testing.T) {
	c, now := evictedAt(0, 1, 2)
	disk := seen("d", now)
	disk.Resource, disk.Condition = "inodes", v1.NodeDiskPressure
	c.Add(disk, now)
	got, _ := c.Of(podOf("next", "web"), short, now)
	const want = "Back-off starting pod for 20s: the node evicted 3 pods of ReplicaSet web because it was low on memory, and still has MemoryPressure. Its pods start one at a time when that is over."
	if text := got.Event(now); text != want {
		t.Errorf("%s", text)
	}
	got, _ = c.Of(podOf("next", "web"), Short{v1.NodeMemoryPressure: {}, v1.NodeDiskPressure: {}}, now)
	if text := got.Reason(); got.Evicted != 4 || !strings.Contains(text, "low on inodes and memory, and still has DiskPressure and MemoryPressure") {
		t.Errorf("%s", text)
	}
}

func TestWhileItIsNotKnownWhatTheNodeIsShortOfItMayBe(t *testing.T) {
	c, now := evictedAt(0, 1)
	c.Told(nil)
	got, waits := c.Of(podOf("next", "web"), nil, now)
	if !waits || !strings.Contains(got.Reason(), "and it is not known yet whether it still has MemoryPressure") {
		t.Errorf("%+v, %v", got, waits)
	}
	c.Told(Short{})
	if got, waits := c.Of(podOf("next", "web"), Short{}, now); waits {
		t.Errorf("once it is known: %+v", got)
	}
}

func TestThoseThatWaitedAreLetGoOneAtATime(t *testing.T) {
	c, last := evictedAt(0, 1, 20) // 20 s
	at := func(seconds int) time.Time { return last.Add(time.Duration(seconds) * time.Second) }
	for i, tc := range []struct {
		pod   string
		at    int
		until int // 0: it goes
	}{
		{"a", 19, 20},
		{"a", 20, 0},
		{"a", 21, 0}, // once more
		{"b", 21, 40},
		{"c", 22, 40},
		{"c", 40, 0},
		{"b", 40, 60},
		{"b", 60, 0},
	} {
		got, waits := c.Turn(podOf(tc.pod, "web"), short, at(tc.at))
		if waits != (tc.until > 0) || waits && !got.Until.Equal(at(tc.until)) {
			t.Errorf("%d: %s after %d s: %v, %v", i, tc.pod, tc.at, waits, got.Until.Sub(last))
		}
	}
	if _, waits := c.Turn(podOf("d", "web"), Short{}, at(61)); waits {
		t.Error("one waits though the node is short of nothing")
	}
	c.Told(Short{})
	if len(c.let) > 0 {
		t.Errorf("kept when all is forgotten: %v", c.let)
	}
	if _, waits := c.Turn(podOf("e", "web"), short, at(62)); waits {
		t.Error("one waits though nobody was evicted in this shortage")
	}
}

func TestNobodyWaitsForAnothersTurnOnceTheLastEvictionIsForgotten(t *testing.T) {
	c, last := evictedAt(0, 1, 2, 3, 4, 5, 6, 7) // 5 min
	at := func(minutes int) time.Time { return last.Add(time.Duration(minutes) * time.Minute) }
	for i, tc := range []struct {
		pod       string
		at, until int // minutes; 0: it goes
	}{
		{"a", 6, 0},
		{"b", 7, 10}, // not 11
		{"b", 10, 0},
		{"c", 10, 0},
	} {
		got, waits := c.Turn(podOf(tc.pod, "web"), short, at(tc.at))
		if waits != (tc.until > 0) || waits && !got.Until.Equal(at(tc.until)) {
			t.Errorf("%d: %s after %d min: %v, %v", i, tc.pod, tc.at, waits, got.Until.Sub(last))
		}
	}
}
