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
	want := []Unlinked{
		{Container: "c", Root: Files{3, 1}, Layer: Files{7, 2}, Volumes: map[string]Files{"a": {2, 1}, "new": {}}, Largest: "/f"},
		{Container: "new", Root: Files{1, 1}, Volumes: map[string]Files{}},
	}
	if !reflect.DeepEqual(got, want) {
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

func TestBesideFiguresThatWereMeasuredAnewWhatLiesInCountedVolumesIsLikeAnyOther(t *testing.T) {
	all := []Unlinked{
		{Container: "c", Root: Files{1, 1}, Volumes: map[string]Files{"a": {1, 1}}, Counted: map[string]Files{"a": {10, 2}, "b": {100, 3}, "": {1000, 4}}},
		{Container: "d", Counted: map[string]Files{"b": {5, 1}}},
		{Container: "e", Root: Files{7, 1}},
	}
	want := []Unlinked{
		{Container: "c", Root: Files{1111, 10}, Volumes: map[string]Files{"a": {11, 3}, "b": {100, 3}}},
		{Container: "d", Root: Files{5, 1}, Volumes: map[string]Files{"b": {5, 1}}},
		{Container: "e", Root: Files{7, 1}},
	}
	if got := Whole(all); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if all[0].Root.Bytes != 1 || len(all[0].Volumes) != 1 || len(all[0].Counted) != 3 {
		t.Errorf("what was given is %+v", all[0])
	}
}

// Else a pod whose containers take turns in holding a file would hold nothing.
func TestWhatOneContainerHandsToAnotherIsHeldAllTheTime(t *testing.T) {
	for name, c := range map[string]struct{ first, second, want []Unlinked }{
		"in a volume": {
			[]Unlinked{{Container: "a", Root: Files{60, 1}, Volumes: map[string]Files{"v": {60, 1}}}},
			[]Unlinked{{Container: "b", Root: Files{50, 1}, Volumes: map[string]Files{"v": {50, 1}}}},
			[]Unlinked{{Container: "b", Root: Files{50, 1}, Volumes: map[string]Files{"v": {50, 1}}}},
		},
		"nobody knows where": {
			[]Unlinked{{Container: "a", Root: Files{60, 1}}}, []Unlinked{{Container: "b", Root: Files{90, 2}}},
			[]Unlinked{{Container: "b", Root: Files{60, 1}, Volumes: map[string]Files{}}},
		},
		"to two": {
			[]Unlinked{{Container: "a", Root: Files{60, 2}}},
			[]Unlinked{{Container: "a", Root: Files{40, 1}}, {Container: "b", Root: Files{40, 1}}},
			[]Unlinked{{Container: "a", Root: Files{40, 1}, Volumes: map[string]Files{}}, {Container: "b", Root: Files{20, 1}, Volumes: map[string]Files{}}},
		},
		"in another volume": {
			[]Unlinked{{Container: "a", Root: Files{60, 1}, Volumes: map[string]Files{"v": {60, 1}}}},
			[]Unlinked{{Container: "a", Root: Files{50, 1}, Volumes: map[string]Files{"w": {50, 1}}}},
			[]Unlinked{{Container: "a", Root: Files{50, 1}, Volumes: map[string]Files{"w": {}}}},
		},
		"in a layer, which is the container's own": {
			[]Unlinked{{Container: "a", Layer: Files{60, 1}}}, []Unlinked{{Container: "b", Layer: Files{60, 1}}},
			[]Unlinked{{Container: "b", Volumes: map[string]Files{}}},
		},
	} {
		if got := Least(c.first, c.second); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
