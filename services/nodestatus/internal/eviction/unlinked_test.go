package eviction

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestOpenFilesWithoutANameCountForTheFilesystemTheyLieOn(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	figures := Figures{"u": {PodRef: statsapi.PodReference{UID: "u"}}}
	all := map[types.UID][]Unlinked{"u": {
		{Container: "a", Root: Files{Bytes: 100, Count: 2}, Layer: Files{Bytes: 30, Count: 1}, Largest: "/scratch/x"},
		{Container: "b", Root: Files{Bytes: 1 << 50, Count: 1}, Largest: "/shares/its/blocks"},
	}}
	apart := threshold.Layout{ImagesApart: true}
	for _, test := range []struct {
		signal string
		layout threshold.Layout
		want   int64
	}{
		{"nodefs.available", threshold.Layout{}, 1130},
		{"nodefs.available", apart, 1100},
		{"imagefs.available", apart, 30},
		{"nodefs.inodesFree", threshold.Layout{}, 4},
		{"memory.available", threshold.Layout{}, 0},
	} {
		got := Rank(pressure.Signal{Name: test.signal, Capacity: 1000}, test.layout, []*v1.Pod{pod}, figures, all)[0]
		if got.Usage != test.want || (got.Unlinked != Held{}) != (test.want > 0) {
			t.Errorf("%s, %+v: %+v, want %d", test.signal, test.layout, got, test.want)
		}
	}
}

func TestWhatWasHeldAllTheTimeCountsAndInALayerOnlyWhatWasWeighedMeanwhile(t *testing.T) {
	first := []Unlinked{{Container: "c", Root: Files{3, 1}, Layer: Files{9, 2}}, {Container: "gone", Root: Files{1, 1}}}
	second := []Unlinked{{Container: "c", Root: Files{5, 1}, Layer: Files{7, 2}, Largest: "/f"}, {Container: "new", Root: Files{1, 1}}}
	first[0].Volumes = map[string]Files{"a": {2, 1}, "gone": {1, 1}}
	second[0].Volumes = map[string]Files{"a": {4, 1}, "new": {1, 1}}
	got := Least(first, second)
	if want := []Unlinked{{Container: "c", Root: Files{3, 1}, Layer: Files{7, 2}, Volumes: map[string]Files{"a": {2, 1}, "new": {}}, Largest: "/f"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	since := time.Unix(100, 0)
	s := stats("p", 0, 0, 1, 1, nil)
	for at, want := range map[int64]uint64{100: 0, 101: 7} {
		s.Containers[0].Rootfs.Time = metav1.Unix(at, 0)
		if w := Weighed(got, s, since); w[0].Layer.Bytes != want || w[0].Root.Bytes != 3 {
			t.Errorf("at %d %+v", at, w)
		}
	}
	if w := Weighed(got, nil, since); w[0].Layer.Bytes != 0 || got[0].Layer.Bytes != 7 {
		t.Errorf("%+v", w)
	}
}

func TestLayersAloneHaveNothingOfDirectories(t *testing.T) {
	n := uint64(7)
	fs := &statsapi.FsStats{UsedBytes: &n}
	got := LayersAlone(&statsapi.PodStats{
		EphemeralStorage: fs, VolumeStats: []statsapi.VolumeStats{{Name: "v", FsStats: *fs}}, Containers: []statsapi.ContainerStats{{Name: "c", Logs: fs, Rootfs: fs}},
	})
	if got.EphemeralStorage == nil || got.EphemeralStorage.UsedBytes != nil || got.VolumeStats != nil || got.Containers[0].Logs != nil || got.Containers[0].Rootfs != fs || got.Containers[0].Name != "c" {
		t.Errorf("%+v", got)
	}
	if LayersAlone(nil) != nil || LayersAlone(&statsapi.PodStats{}).EphemeralStorage != nil {
		t.Error("something is made of nothing")
	}
}
