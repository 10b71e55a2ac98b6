package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestWhereAPodHasTheMostIsToldByItsOwnDirectories(t *testing.T) {
	const mi = 1 << 20
	of := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n} }
	pod := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
		{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "tiny", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}}}
	figures := &statsapi.PodStats{
		VolumeStats: []statsapi.VolumeStats{{Name: "claim", FsStats: *of(900 * mi)}, {Name: "tiny", FsStats: *of(1 * mi)}, {Name: "cache", FsStats: *of(60 * mi)}},
		Containers:  []statsapi.ContainerStats{{Name: "c", Rootfs: of(40 * mi), Logs: of(50 * mi)}, {Name: "idle", Rootfs: of(0)}, {Rootfs: of(400 * mi)}},
	}
	const want = "volume cache has 60Mi, the log of container c has 50Mi, the writable layer of container c has 40Mi, and less in 1 more"
	if got := Parts(pod, figures); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := Parts(pod, nil) + Parts(pod, &statsapi.PodStats{}); got != "" {
		t.Error(got)
	}
}
