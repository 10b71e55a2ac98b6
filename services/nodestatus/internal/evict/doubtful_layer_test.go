package evict

import (
	"context"
	"strings"
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

// seldomWeighed is stats with a pod whose layer was weighed before the test, and from weighed on
// has each time the figure of takes ago; its volume is walked at once.
type seldomWeighed struct {
	*world
	weighed     time.Time
	takes       time.Duration
	layer, more uint64 // in the layer, and in the volume
	// over: its container has ended. unsure: others may have a part in its volume.
	over, unsure bool
	// long: its volume takes too long to be walked at once.
	long bool
}

func (r *seldomWeighed) summary() *statsapi.Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, whole, sum := time.Now(), uint64(capacity), r.layer+r.more
	at := r.weighed.Add(-48 * time.Hour)
	if now.After(r.weighed) {
		at = now.Add(-r.takes)
	}
	of := func(n uint64, at time.Time) *statsapi.FsStats {
		return &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: &n, CapacityBytes: &whole}
	}
	c := statsapi.ContainerStats{Name: "a", CPU: &statsapi.CPUStats{}, Logs: of(0, now), Rootfs: of(r.layer, at)}
	if r.over {
		c.CPU = nil
	}
	return &statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef:           statsapi.PodReference{UID: "mover"},
		Containers:       []statsapi.ContainerStats{c},
		VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: *of(r.more, now)}},
		EphemeralStorage: of(sum, now),
	}}}
}

func (r *seldomWeighed) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return r.summary(), map[types.UID]bool{"mover": r.unsure}, nil
}

func (r *seldomWeighed) Renewed(context.Context, time.Time, ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	return r.summary(), eviction.Late{Layers: map[types.UID]bool{"mover": true}, Directories: map[types.UID]bool{"mover": r.long}}, nil
}

func (r *seldomWeighed) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	return nil, nil, true, nil
}

func withLayer(p *v1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "a", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("100Mi")}}})
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
}

// What it had in its layer it may have moved to its volume: it never had more than 80Mi.
func TestALayerThatTheRuntimeDoesNotWeighIsInNoSum(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.loop.deps.Stats = &seldomWeighed{world: w, weighed: time.Now().Add(24 * time.Hour), layer: 80 * mi, more: 80 * mi}
		w.pod("mover", 1, 0, withLayer)
		w.pass(time.Hour)
		w.wantStops("its layer's figure is older than the suspicion")
	})
}

// However long the runtime takes for it: a layer of many files hides nothing.
func TestALayerIsInTheSumAsSoonAsItIsWeighed(t *testing.T) {
	for _, takes := range []time.Duration{0, 30 * time.Second, 3 * time.Minute} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			w.loop.deps.Stats = &seldomWeighed{world: w, weighed: time.Now().Add(5 * time.Minute), takes: takes, layer: 80 * mi, more: 80 * mi}
			w.pod("mover", 1, 0, withLayer)
			w.pass(5*time.Minute - time.Second)
			w.wantStops("the layer was not weighed yet")
			w.pass(5 * time.Minute)
			w.wantStops("it has 160Mi of 100Mi, weighed "+takes.String()+" ago", "mover")
			if d := w.last(); !strings.HasSuffix(d.Why, "; volume v has 80Mi, the writable layer of container a has 80Mi") {
				t.Errorf("where it has them is told as %q", d.Why)
			}
		})
	}
}

// fills is stats with a pod that has at each moment 60Mi in its layer and 60Mi in one of two volumes,
// at each look in the other. The layer is weighed each period, which takes a while, and has the figure
// of when that began last.
type fills struct {
	*world
	period, takes time.Duration
	calls         int
	older         []uint64 // of earlier runs of containers
}

func (r *fills) summary() *statsapi.Summary {
	now, whole := time.Now(), uint64(capacity)
	of := func(n uint64, at time.Time) *statsapi.FsStats {
		return &statsapi.FsStats{Time: metav1.NewTime(at.Truncate(time.Second)), UsedBytes: &n, CapacityBytes: &whole}
	}
	full := [2]uint64{}
	full[r.calls%2] = 60 * mi
	p := statsapi.PodStats{
		PodRef:           statsapi.PodReference{UID: "mover"},
		Containers:       []statsapi.ContainerStats{{Name: "a", CPU: &statsapi.CPUStats{}, Logs: of(0, now), Rootfs: of(60*mi, now.Add(-r.takes).Truncate(r.period))}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: *of(full[0], now)}, {Name: "w", FsStats: *of(full[1], now)}},
		EphemeralStorage: of(120*mi, now),
	}
	for _, n := range r.older {
		p.Containers = append(p.Containers, statsapi.ContainerStats{Rootfs: of(n, now)})
	}
	return &statsapi.Summary{Pods: []statsapi.PodStats{p}}
}

func (r *fills) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return r.summary(), nil, nil
}

func (r *fills) Renewed(context.Context, time.Time, ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	r.calls++
	return r.summary(), eviction.Late{}, nil
}

func (r *fills) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	return nil, nil, true, nil
}

func TestWhoFillsOneVolumeAfterTheOtherIsFoundHoweverSeldomItsLayerIsWeighed(t *testing.T) {
	for _, c := range []struct{ period, takes time.Duration }{{time.Second, 0}, {10 * time.Second, 3 * time.Second}, {20 * time.Second, 10 * time.Second}, {40 * time.Second, 30 * time.Second}} {
		for _, older := range [][]uint64{nil, {50 * mi, 0}} {
			in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
				w.loop.deps.Stats = &fills{world: w, period: c.period, takes: c.takes, older: older}
				w.pod("mover", 1, 0, withLayer, func(p *v1.Pod) {
					p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "w", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
				})
				w.pass(5 * time.Minute)
				w.wantStops("it has 120Mi of 100Mi, its layer is weighed each "+c.period.String(), "mover")
			})
		}
	}
}

// What it had in its layer it has moved to its volume as the last it did: the runtime's figure is of
// before its end, which stats says.
func TestALayerOfAContainerThatHasEndedIsInNoSumEitherUntilItIsWeighed(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		r := &seldomWeighed{world: w, weighed: time.Now().Add(24 * time.Hour), layer: 80 * mi, more: 80 * mi, over: true}
		w.loop.deps.Stats = r
		w.pod("mover", 1, 0, withLayer)
		w.pass(time.Hour)
		w.wantStops("its layer's figure is of before its end")
	})
}

// However old: what one directory has is in no sum.
func TestALayerThatIsOverTheLimitAloneNeedsNoNewFigure(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			w.loop.deps.Stats = &seldomWeighed{world: w, weighed: time.Now().Add(24 * time.Hour), layer: 150 * mi, unsure: unsure}
			w.pod("mover", 1, 0, withLayer)
			w.pass(time.Minute)
			w.wantStops("its layer has 150Mi of 100Mi", "mover")
		})
	}
}

func TestASuspectThatHasCleanedUpIsNoneThoughItsLayerIsNeverWeighed(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		r := &seldomWeighed{world: w, weighed: time.Now().Add(-time.Second), layer: 80 * mi, more: 80 * mi, unsure: true, long: true}
		w.loop.deps.Stats = r
		w.pod("mover", 1, 0, withLayer)
		w.pass(30 * time.Second)
		w.set(func() { r.long = false })
		for range 300 {
			if w.pass(time.Second); w.loop.suspects["mover"].once {
				break
			}
		}
		if !w.loop.suspects["mover"].once {
			t.Fatalf("it is not to be walked once more: %+v", w.loop.suspects)
		}
		w.set(func() { r.more, r.takes, r.unsure = 0, 24*time.Hour, false })
		w.pass(10 * time.Minute)
		if n := len(w.loop.suspects); n != 0 {
			t.Errorf("%d suspects", n)
		}
		w.wantStops("it has 80Mi of 100Mi")
	})
}
