package evict

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// mover is stats with a pod of two volumes, what it has in which moves from "a" to "b" from began
// on. "a" takes long to be walked: its figure is old, and of a walk that began ten seconds after
// it was asked for.
type mover struct {
	*world
	began time.Time
	takes time.Duration
	all   uint64
	// greater is what it has in "b" besides.
	greater uint64
	unsure  bool
}

func (m *mover) moved(at time.Time) uint64 {
	gone := min(max(at.Sub(m.began), 0), m.takes)
	return m.all * uint64(gone) / uint64(m.takes)
}

func (m *mover) summary(a time.Time) *statsapi.Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, whole := metav1.Now(), uint64(capacity)
	inA, inB := m.all-m.moved(a), m.greater+m.moved(now.Time)
	sum := inA + inB
	of := func(n *uint64) statsapi.FsStats {
		return statsapi.FsStats{Time: now, UsedBytes: n, CapacityBytes: &whole}
	}
	all := of(&sum)
	return &statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef:      statsapi.PodReference{UID: "mover"},
		VolumeStats: []statsapi.VolumeStats{{Name: "a", FsStats: of(&inA)}, {Name: "b", FsStats: of(&inB)}}, EphemeralStorage: &all,
	}}}
}

func (m *mover) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return m.summary(time.Now().Add(-4 * time.Minute)), map[types.UID]bool{"mover": m.unsure}, nil
}

func (m *mover) Renewed(_ context.Context, since time.Time, _ ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	late := since.IsZero() || time.Since(since) < 30*time.Second
	return m.summary(since.Add(10 * time.Second)), eviction.Late{Directories: map[types.UID]bool{"mover": late}}, nil
}

func (m *mover) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	return nil, nil, true, nil
}

// However slowly it does: the figures are a minute apart.
func TestWhoMovesWhatItHasOverMinutesIsNotStoppedForBoth(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		for _, unsure := range []bool{false, true} {
			in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
				w.loop.deps.Stats = &mover{world: w, began: time.Now().Add(time.Minute), takes: takes, all: 95 * mi, unsure: unsure}
				w.pod("mover", 1, 0, limitedInAll)
				w.pass(40 * time.Minute)
				w.wantStops("it has 95Mi of 100Mi, moved in " + takes.String())
			})
		}
	}
}

func TestWhoMovesAndHasTooMuchIsStopped(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			w.loop.deps.Stats = &mover{world: w, began: time.Now().Add(time.Minute), takes: 10 * time.Minute, all: 80 * mi, greater: 60 * mi, unsure: unsure}
			w.pod("mover", 1, 0, limitedInAll)
			w.pass(12 * time.Minute)
			w.wantStops("it has 140Mi of 100Mi", "mover")
		})
	}
}

// What a suspect had at least does not stand for ever.
func TestWhoHasTooMuchOnlyAfterItWasNotStoppedForBothIsStopped(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		m := &mover{world: w, began: time.Now().Add(time.Minute), takes: 2 * time.Minute, all: 80 * mi}
		w.loop.deps.Stats = m
		w.pod("mover", 1, 0, limitedInAll)
		w.pass(4 * time.Minute)
		w.wantStops("it has 80Mi of 100Mi, moved")
		w.set(func() { m.greater = 60 * mi })
		w.pass(8 * time.Minute)
		w.wantStops("it has 140Mi of 100Mi", "mover")
	})
}

// rotating is stats with a pod that at each moment has 80Mi in two of its volumes, in others each ten
// seconds; all are walked within a moment.
type rotating struct{ *world }

func (r *rotating) summary() *statsapi.Summary {
	now, whole, sum, none, much := metav1.Now(), uint64(capacity), uint64(160*mi), uint64(0), uint64(80*mi)
	pod := statsapi.PodStats{PodRef: statsapi.PodReference{UID: "rotating"}, EphemeralStorage: &statsapi.FsStats{Time: now, UsedBytes: &sum, CapacityBytes: &whole}}
	for i := range int64(8) {
		used := &none
		if now.Unix()/7%4 == i/2 {
			used = &much
		}
		pod.VolumeStats = append(pod.VolumeStats, statsapi.VolumeStats{Name: fmt.Sprint("v", i), FsStats: statsapi.FsStats{Time: now, UsedBytes: used, CapacityBytes: &whole}})
	}
	return &statsapi.Summary{Pods: []statsapi.PodStats{pod}}
}

func (r *rotating) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return r.summary(), nil, nil
}

func (r *rotating) Renewed(context.Context, time.Time, ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	return r.summary(), eviction.Late{}, nil
}

func (r *rotating) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	return nil, nil, true, nil
}

// By the least of each it never is; the walks are of one moment.
func TestWhoHasTooMuchInOneDirectoryAfterTheOtherIsStopped(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.loop.deps.Stats = &rotating{w}
		w.pod("rotating", 1, 0, limitedInAll)
		w.pass(3 * time.Minute)
		w.wantStops("it has 160Mi of 100Mi in other volumes each time", "rotating")
	})
}
