package eviction

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// ranked are the names of pods, those that may go before |.
func ranked(all []Candidate) []string {
	var out []string
	for _, c := range all {
		if c.Not != "" && !slices.Contains(out, "|") {
			out = append(out, "|")
		}
		out = append(out, c.Pod.Name)
	}
	return out
}

func TestForMemoryThoseGoFirstThatExceedTheirRequestThenTheLeastImportantThenTheLargest(t *testing.T) {
	static := pod("static", 0, nil)
	static.Annotations["kubernetes.io/config.source"] = "file"
	ended := pod("ended", 0, nil)
	ended.Status.Phase = v1.PodFailed
	whole := pod("whole", 0, asks("memory", "1Mi")) // Its request as a pod counts, not its container's.
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: asks("memory", "300Mi")}
	overhead := pod("overhead", 0, asks("memory", "100Mi"))
	overhead.Spec.Overhead = asks("memory", "50Mi")
	pods := []*v1.Pod{
		pod("within", -5, asks("memory", "200Mi")), pod("important", 100, asks("memory", "50Mi")), pod("small", 0, nil), pod("large", 0, asks("memory", "10Mi")),
		pod("unknown", -10, nil), pod("absurd", -10, nil), static, pod("critical", 2_000_000_000, nil), ended, whole, overhead,
	}
	f := figures(
		stats("within", 150*mi, 0, 0, 0, nil), stats("important", 900*mi, 0, 0, 0, nil), stats("small", 20*mi, 0, 0, 0, nil), stats("large", 100*mi, 0, 0, 0, nil),
		stats("static", 800*mi, 0, 0, 0, nil), stats("critical", 700*mi, 0, 0, 0, nil), stats("whole", 250*mi, 0, 0, 0, nil), stats("absurd", 1<<50, 0, 0, 0, nil),
		stats("overhead", 120*mi, 0, 0, 0, nil),
	)
	for _, signal := range []string{"memory.available", "allocatableMemory.available"} {
		got := ranked(Rank(pressure.Signal{Name: signal, Capacity: 8 << 30}, threshold.Layout{}, pods, f, nil))
		want := []string{"large", "small", "important", "within", "overhead", "whole", "|", "static", "critical", "absurd", "unknown"}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", signal, got, want)
		}
	}
}

func TestForProcessesTheLeastImportantGoFirstThenThoseWithTheMost(t *testing.T) {
	pods := []*v1.Pod{pod("few", 0, nil), pod("many", 0, nil), pod("important", 5, nil), pod("absurd", 0, nil)}
	f := figures(stats("few", 0, 3, 0, 0, nil), stats("many", 0, 300, 0, 0, nil), stats("important", 0, 3000, 0, 0, nil), stats("absurd", 0, 1<<40, 0, 0, nil))
	got := ranked(Rank(pressure.Signal{Name: "pid.available", Capacity: 32768}, threshold.Layout{}, pods, f, nil))
	if want := []string{"many", "few", "important", "|", "absurd"}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestForDiskThoseGoFirstThatHaveMostOfWhatLiesOnThatFilesystem(t *testing.T) {
	one, apart, split := threshold.Layout{}, threshold.Layout{ImagesApart: true}, threshold.Layout{ImagesApart: true, ContainersApart: true}
	layer, logs, volumes, asked := pod("layer", 0, nil), pod("logs", 0, nil), pod("volumes", 0, nil), pod("asked", -1, asks("ephemeral-storage", "1Gi"))
	host := v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}}
	volumes.Spec.Volumes = []v1.Volume{emptyDir("scratch", "", ""), host, emptyDir("memory", "", v1.StorageMediumMemory), {Name: "claim"}}
	pods := []*v1.Pod{layer, logs, volumes, asked}
	f := figures(
		stats("layer", 0, 0, 300*mi, 1*mi, nil), stats("logs", 0, 0, 2*mi, 200*mi, nil),
		stats("volumes", 0, 0, 3*mi, 3*mi, map[string]uint64{"scratch": 100 * mi, "host": 150 * mi, "memory": 900 * mi, "claim": 900 * mi}),
		stats("asked", 0, 0, 400*mi, 100*mi, nil),
	)
	for _, test := range []struct {
		signal string
		layout threshold.Layout
		want   []string
		usage  uint64 // of the pod with volumes, in MiB
	}{
		{"nodefs.available", one, []string{"layer", "volumes", "logs", "asked"}, 256},
		{"imagefs.available", one, []string{"layer", "volumes", "logs", "asked"}, 256},
		{"containerfs.available", one, []string{"layer", "volumes", "logs", "asked"}, 256},
		{"nodefs.available", apart, []string{"volumes", "logs", "layer", "asked"}, 253},
		{"imagefs.available", apart, []string{"layer", "volumes", "logs", "asked"}, 3},
		{"containerfs.available", apart, []string{"layer", "volumes", "logs", "asked"}, 3},
		{"nodefs.available", split, []string{"layer", "volumes", "logs", "asked"}, 256},
		{"containerfs.available", split, []string{"layer", "volumes", "logs", "asked"}, 256},
		{"imagefs.available", split, []string{"asked", "layer", "logs", "volumes"}, 0},
		{"nodefs.inodesFree", one, []string{"asked", "layer", "volumes", "logs"}, 65536 / mi},
		{"nodefs.inodesFree", apart, []string{"asked", "volumes", "logs", "layer"}, 64768 / mi},
		{"imagefs.inodesFree", apart, []string{"asked", "layer", "volumes", "logs"}, 0},
		{"containerfs.inodesFree", apart, []string{"asked", "layer", "volumes", "logs"}, 0},
		{"nodefs.inodesFree", split, []string{"asked", "layer", "volumes", "logs"}, 0},
		{"containerfs.inodesFree", split, []string{"asked", "layer", "volumes", "logs"}, 0},
	} {
		all := Rank(pressure.Signal{Name: test.signal, Capacity: 1 << 40}, test.layout, pods, f, nil)
		if got := ranked(all); !slices.Equal(got, test.want) {
			t.Errorf("%s, %+v:\n got %v\nwant %v", test.signal, test.layout, got, test.want)
		}
		for _, c := range all {
			if c.Pod == volumes && ResourceOf(test.signal) != inodes && uint64(c.Usage) != test.usage*mi {
				t.Errorf("%s, %+v: volumes count %d", test.signal, test.layout, c.Usage)
			}
		}
	}
}

// A pod that clones a file often enough could hide otherwise.
func TestMoreThanAFilesystemHasCountsForAllOfIt(t *testing.T) {
	p, s := pod("p", 0, nil), stats("p", 0, 0, 5*mi, 0, nil)
	capacity := resource.MustParse("1Mi")
	small := uint64(capacity.Value())
	s.Containers[0].Rootfs.CapacityBytes = &small
	if got := Rank(pressure.Signal{Name: "nodefs.available"}, threshold.Layout{}, []*v1.Pod{p}, figures(s), nil); got[0].Usage != 1*mi || !got[0].Exceeds {
		t.Errorf("%+v", got[0])
	}
}
