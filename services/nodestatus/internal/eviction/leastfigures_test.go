package eviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	spec := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {Name: "b", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
	}}}
	first, second := pod(9, 3, 5, 7, 24), pod(4, 8, 6, 7, 26) // with a byte that is the pod's own
	got := LeastFigures(spec, first, second)
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
	if LeastFigures(spec, nil, second) != second || LeastFigures(spec, first, nil) != nil {
		t.Error("of nothing")
	}
	bare := &statsapi.PodStats{Containers: []statsapi.ContainerStats{{Name: "c"}, {Name: "new", Rootfs: of(1)}}}
	if got := LeastFigures(spec, first, bare); got.Containers[0].Rootfs != nil || *got.Containers[1].Rootfs.UsedBytes != 1 || got.EphemeralStorage != nil {
		t.Errorf("%+v", got)
	}
}

// They are called nothing, whoever's they are, and are in no sum.
func TestWhatEarlierRunsOfContainersHaveTakesNothingOffASum(t *testing.T) {
	of := func(name string, n uint64) statsapi.ContainerStats {
		return statsapi.ContainerStats{Name: name, Rootfs: &statsapi.FsStats{UsedBytes: &n}}
	}
	all := uint64(60)
	figures := &statsapi.PodStats{Containers: []statsapi.ContainerStats{of("a", 60), of("", 50), of("", 0)}, EphemeralStorage: &statsapi.FsStats{UsedBytes: &all}}
	for name, got := range map[string]*statsapi.PodStats{"all": LeastFigures(&v1.Pod{}, figures, figures), "layers": LeastLayers(figures, figures)} {
		if *got.EphemeralStorage.UsedBytes != all || *got.Containers[1].Rootfs.UsedBytes != 50 {
			t.Errorf("%s: %d of %d, and %d of 50", name, *got.EphemeralStorage.UsedBytes, all, *got.Containers[1].Rootfs.UsedBytes)
		}
	}
}

func TestNoLayerHasMoreThanItHadAndLogsAndVolumesHaveWhatTheyHave(t *testing.T) {
	pod := func(layer, logs, volume uint64) *statsapi.PodStats {
		all := layer + logs + volume
		return &statsapi.PodStats{
			Containers:       []statsapi.ContainerStats{{Name: "c", Rootfs: &statsapi.FsStats{UsedBytes: &layer}, Logs: &statsapi.FsStats{UsedBytes: &logs}}},
			VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &volume}}},
			EphemeralStorage: &statsapi.FsStats{UsedBytes: &all},
		}
	}
	got := LeastLayers(pod(2, 1, 1), pod(5, 3, 4))
	if c := got.Containers[0]; *c.Rootfs.UsedBytes != 2 || *c.Logs.UsedBytes != 3 || *got.VolumeStats[0].UsedBytes != 4 || *got.EphemeralStorage.UsedBytes != 9 {
		t.Errorf("layer %d, logs %d, volume %d, all %d", *c.Rootfs.UsedBytes, *c.Logs.UsedBytes, *got.VolumeStats[0].UsedBytes, *got.EphemeralStorage.UsedBytes)
	}
	second := pod(5, 3, 4)
	if LeastLayers(nil, second) != second || LeastLayers(second, nil) != nil {
		t.Error("of nothing")
	}
}

func TestOfALayerThatWasNotWeighedSinceASumHasNothing(t *testing.T) {
	since := time.Date(2026, 11, 28, 7, 0, 0, 5e8, time.UTC)
	of := func(n uint64, at time.Time) *statsapi.FsStats {
		return &statsapi.FsStats{Time: metav1.NewTime(at), UsedBytes: &n}
	}
	pod := func(layer *statsapi.FsStats) *statsapi.PodStats {
		all := uint64(9)
		return &statsapi.PodStats{Containers: []statsapi.ContainerStats{{Name: "c", CPU: &statsapi.CPUStats{}, Rootfs: layer, Logs: of(3, since)}}, EphemeralStorage: &statsapi.FsStats{UsedBytes: &all}}
	}
	for name, c := range map[string]struct {
		at          time.Time
		layer, both uint64
	}{
		"a second before": {since.Add(-time.Second), 0, 4}, "to the second": {since.Truncate(time.Second), 5, 9},
		"since": {since.Add(time.Second), 5, 9}, "of an older stats, without a time": {time.Time{}, 5, 9},
	} {
		given := pod(of(5, c.at))
		got, whole := LayersSince(given, since, false)
		if *got.Containers[0].Rootfs.UsedBytes != c.layer || *got.EphemeralStorage.UsedBytes != c.both || *got.Containers[0].Logs.UsedBytes != 3 || whole != (c.layer == 5) {
			t.Errorf("%s: the layer has %d, all %d, whole: %v", name, *got.Containers[0].Rootfs.UsedBytes, *got.EphemeralStorage.UsedBytes, whole)
		}
		if *given.Containers[0].Rootfs.UsedBytes != 5 || *given.EphemeralStorage.UsedBytes != 9 {
			t.Errorf("%s: what was given has changed", name)
		}
	}
	over := pod(of(5, since.Add(-time.Minute)))
	over.Containers[0].CPU = nil // it has ended
	for late, want := range map[bool]uint64{false: 5, true: 0} {
		if got, whole := LayersSince(over, since, late); *got.Containers[0].Rootfs.UsedBytes != want || whole == late {
			t.Errorf("of one that has ended, late %v: %d, whole: %v", late, *got.Containers[0].Rootfs.UsedBytes, whole)
		}
	}
	if got, whole := LayersSince(nil, since, true); got != nil || !whole {
		t.Error("of nothing")
	}
}

// A claim's filesystem is filled by others, too, and a pod may fill its memory: neither may
// keep it from being over its limit.
func TestWhatIsNoPartOfAPodsStorageTakesNothingOffIt(t *testing.T) {
	of := func(name string, n uint64) statsapi.VolumeStats {
		return statsapi.VolumeStats{Name: name, FsStats: statsapi.FsStats{UsedBytes: &n}}
	}
	pod := func(claim, memory, own, all uint64) *statsapi.PodStats {
		return &statsapi.PodStats{
			VolumeStats:      []statsapi.VolumeStats{of("claim", claim), of("memory", memory), of("own", own)},
			EphemeralStorage: &statsapi.FsStats{UsedBytes: &all},
		}
	}
	spec := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
		{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "own", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}}}
	got := LeastFigures(spec, pod(100, 10, 5, 7), pod(1000, 90, 8, 10))
	if all := *got.EphemeralStorage.UsedBytes; all != 7 {
		t.Errorf("%d in all, want 7: less by what its own directory has more", all)
	}
	if claim, memory := *got.VolumeStats[0].UsedBytes, *got.VolumeStats[1].UsedBytes; claim != 100 || memory != 10 {
		t.Errorf("claim %d, memory %d, want the least of each", claim, memory)
	}
}
