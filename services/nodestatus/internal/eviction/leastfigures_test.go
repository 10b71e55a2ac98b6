package eviction

import (
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestNoDirectoryHasMoreThanItHadAndTheSumIsLessByThat(t *testing.T) {
	of := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n} }
	pod := func(a, b, layer, logs, all uint64) *statsapi.PodStats {
		return &statsapi.PodStats{
			VolumeStats:      []statsapi.VolumeStats{{Name: "a", FsStats: *of(a)}, {Name: "b", FsStats: *of(b)}},
			Containers:       []statsapi.ContainerStats{{Name: "c", Rootfs: of(layer), Logs: of(logs)}},
			EphemeralStorage: of(all),
		}
	}
	first, second := pod(9, 3, 5, 7, 24), pod(4, 8, 6, 7, 26) // with a byte that is the pod's own
	got := LeastFigures(first, second)
	for name, c := range map[string][2]uint64{
		"a": {*got.VolumeStats[0].UsedBytes, 4}, "b": {*got.VolumeStats[1].UsedBytes, 3}, "layer": {*got.Containers[0].Rootfs.UsedBytes, 5},
		"logs": {*got.Containers[0].Logs.UsedBytes, 7}, "all": {*got.EphemeralStorage.UsedBytes, 20},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", name, c[0], c[1])
		}
	}
	if *second.VolumeStats[1].UsedBytes != 8 || *second.EphemeralStorage.UsedBytes != 26 || *second.Containers[0].Rootfs.UsedBytes != 6 {
		t.Error("what was given has changed")
	}
	if LeastFigures(nil, second) != second || LeastFigures(first, nil) != nil {
		t.Error("of nothing")
	}
	bare := &statsapi.PodStats{Containers: []statsapi.ContainerStats{{Name: "c"}, {Name: "new", Rootfs: of(1)}}}
	if got := LeastFigures(first, bare); got.Containers[0].Rootfs != nil || *got.Containers[1].Rootfs.UsedBytes != 1 || got.EphemeralStorage != nil {
		t.Errorf("%+v", got)
	}
}
