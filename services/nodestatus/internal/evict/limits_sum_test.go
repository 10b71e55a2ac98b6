package evict

import (
	"context"
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

// masked is stats with a pod of containers a and b, and a volume; late: that never is walked whole.
type masked struct {
	*world
	logsA, layerA, logsB, vol uint64
	late                      bool
}

func (r *masked) summary() *statsapi.Summary {
	now, whole := metav1.Now(), uint64(capacity)
	of := func(n uint64) *statsapi.FsStats {
		return &statsapi.FsStats{Time: now, UsedBytes: &n, CapacityBytes: &whole}
	}
	return &statsapi.Summary{Pods: []statsapi.PodStats{{
		PodRef:           statsapi.PodReference{UID: "masked"},
		Containers:       []statsapi.ContainerStats{{Name: "a", Logs: of(r.logsA), Rootfs: of(r.layerA)}, {Name: "b", Logs: of(r.logsB), Rootfs: of(0)}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: *of(r.vol)}},
		EphemeralStorage: of(r.logsA + r.layerA + r.logsB + r.vol),
	}}}
}
func (r *masked) Weighed(context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	return r.summary(), nil, nil
}
func (r *masked) Renewed(context.Context, time.Time, ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	return r.summary(), eviction.Late{Directories: map[types.UID]bool{"masked": r.late}}, nil
}
func (r *masked) Unlinked(context.Context) (map[types.UID][]eviction.Unlinked, map[types.UID]bool, bool, error) {
	return nil, nil, true, nil
}

// A sum hides nothing that is sure, and a volume that is never walked whole keeps no container's limit
// off.
func TestALimitIsKeptBesideAnotherThatIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		of   masked
		most time.Duration
	}{
		"a by its sum, b alone, late": {masked{logsA: 60 * mi, layerA: 60 * mi, logsB: 300 * mi, late: true}, time.Minute},
		"a by its sum, b alone":       {masked{logsA: 60 * mi, layerA: 60 * mi, logsB: 300 * mi}, time.Minute},
		"a by its sum, late":          {masked{logsA: 90 * mi, layerA: 90 * mi, late: true}, 7 * time.Minute},
		"the pod by its sum, late, b": {masked{logsA: mi, logsB: 300 * mi, vol: 250 * mi, late: true}, time.Minute},
		"the pod and a by sums, late": {masked{logsA: 90 * mi, layerA: 90 * mi, vol: 400 * mi, late: true}, 7 * time.Minute},
	} {
		in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
			c.of.world = w
			w.loop.deps.Stats = &c.of
			w.pod("masked", 1, 0, func(p *v1.Pod) {
				for name, limit := range map[string]string{"a": "100Mi", "b": "100Mi", "big": "300Mi"} {
					p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}}})
				}
				p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			})
			w.pass(c.most)
			w.wantStops(name, "masked")
		})
	}
}
