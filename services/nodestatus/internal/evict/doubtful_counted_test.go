package evict

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// Others may have files of their own counted for it, and what it has moved from one volume to
// another counts in both for a while.
func TestWhoIsOverItsLimitByWhatIsCountedHasItsDirectoriesWalked(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("victim", 1, 10*mi, capped)
		w.pod("greedy", 1, 150*mi, capped)
		w.pod("modest", 1, 10*mi, capped)
		w.set(func() {
			w.walked, w.counts = map[string]uint64{"victim": 150 * mi}, map[types.UID]bool{"victim": true, "greedy": true, "modest": true}
		})
		w.pass(5 * time.Second)
		w.wantStops("when it is seen once")
		w.pass(10 * time.Minute)
		w.wantStops("the victim has 10Mi of 100Mi", "greedy")
		for _, of := range w.anew {
			if slices.Contains(of, "modest") || len(of) == 0 {
				t.Fatalf("was measured anew: %v", w.anew)
			}
		}
	})
}

func TestWhoIsOverItsLimitByWhatIsWalkedGoesAtOnce(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 150*mi, capped)
		w.set(func() { w.counts = map[types.UID]bool{"another": true} })
		w.pass(interval + time.Second)
		w.wantStops("nothing of it is counted", "greedy")
		if len(w.anew) != 0 {
			t.Errorf("was measured anew: %v", w.anew)
		}
	})
}

// A million of small files beside is no way to stay over a limit, be it that they are walked at
// last or never are.
func TestWhoseCountedDirectoriesTakeLongToBeWalkedGoesAfterAWhile(t *testing.T) {
	for name, c := range map[string]struct {
		walkedAfter time.Duration
		within      time.Duration
	}{"walked in its turn": {30 * time.Second, 90 * time.Second}, "never walked": {time.Hour, 5 * time.Minute}} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			w.pod("greedy", 1, 150*mi, capped)
			w.set(func() {
				w.counts, w.long, w.slowly = map[types.UID]bool{"greedy": true}, map[string]bool{"greedy": true}, c.walkedAfter
			})
			w.pass(longestDoubt / 2)
			if c.walkedAfter == time.Hour {
				w.wantStops(name + ": it is waited for")
			}
			w.pass(c.within)
			w.wantStops(name, "greedy")
		})
	}
}

func TestWhoIsOverItsLimitByWhatIsCountedGoesThoughNobodyCanLookAtOpenFiles(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 150*mi, capped)
		w.set(func() { w.counts, w.unlookable = map[types.UID]bool{"greedy": true}, true })
		w.pass(3 * interval)
		w.wantStops("its directory was walked", "greedy")
	})
}

// rooms is stats with one pod that holds files without a name: 60Mi in an emptyDir that is
// counted and 60Mi in its layer. As stats does: a figure of its turn has what is held in the
// volume, and a look says so; a renewed one is the walk alone.
type rooms struct {
	*world
	counted bool
	// bare is until when the last figure is a renewed one.
	bare time.Time
}

func (s *rooms) has() uint64 {
	if s.counted && !time.Now().Before(s.bare) {
		return 60 * mi
	}
	return 0
}

func (s *rooms) summary(used uint64) *statsapi.Summary {
	layer, whole, now := uint64(0), uint64(capacity), metav1.Now()
	return &statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef:           statsapi.PodReference{UID: "greedy"},
		Containers:       []statsapi.ContainerStats{{Name: "c", Rootfs: &statsapi.FsStats{Time: now, UsedBytes: &layer, CapacityBytes: &whole}}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "scratch", FsStats: statsapi.FsStats{Time: now, UsedBytes: &used, CapacityBytes: &whole}}},
		EphemeralStorage: &statsapi.FsStats{Time: now, UsedBytes: &used, CapacityBytes: &whole},
	}}}
}

func (s *rooms) Summary(context.Context, Detail) (*statsapi.Summary, error) {
	return s.summary(s.has()), nil
}

func (s *rooms) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return s.summary(s.has()), map[types.UID]bool{"greedy": s.counted}, nil
}

func (s *rooms) Renewed(context.Context, time.Time, ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	time.Sleep(50 * time.Millisecond)
	s.bare = time.Now().Add(10 * time.Second)
	return s.summary(0), eviction.Late{}, nil
}

func (s *rooms) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	time.Sleep(10 * time.Millisecond)
	u := eviction.Unlinked{Container: "c", Layer: eviction.Files{Bytes: 60 * mi, Count: 1}, Largest: "/f"}
	in := map[string]eviction.Files{"scratch": {Bytes: 60 * mi, Count: 1}}
	if s.has() > 0 {
		u.Counted = in
	} else {
		u.Root, u.Volumes = in["scratch"], in
	}
	return map[types.UID][]eviction.Unlinked{"greedy": {u}}, nil, true, nil
}

func TestWhatIsHeldInACountedVolumeAndElsewhereCountsForALimit(t *testing.T) {
	for _, counted := range []bool{false, true} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			w.loop.deps.Stats = &rooms{world: w, counted: counted}
			w.pod("greedy", 1, 0, func(p *v1.Pod) {
				p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("100Mi")}
			})
			w.pass(time.Minute)
			w.wantStops(map[bool]string{true: "counted", false: "walked"}[counted]+", 120Mi of 100Mi", "greedy")
		})
	}
}
