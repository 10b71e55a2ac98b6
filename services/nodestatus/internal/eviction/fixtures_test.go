package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const mi = 1 << 20

// pod has one container c that asks for so much.
func pod(name string, priority int32, requests v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{"kubernetes.io/config.source": "api"}},
		Spec:       v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}}},
	}
}

func asks(name v1.ResourceName, amount string) v1.ResourceList {
	return v1.ResourceList{name: resource.MustParse(amount)}
}

func bytesOf(n uint64) *statsapi.FsStats {
	capacity, files := uint64(1<<40), n/4096
	return &statsapi.FsStats{UsedBytes: &n, CapacityBytes: &capacity, InodesUsed: &files, Inodes: &capacity}
}

// stats are those of a pod with its container c.
func stats(name string, memory, processes, layer, logs uint64, volumes map[string]uint64) *statsapi.PodStats {
	out := &statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: name}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory}, ProcessStats: &statsapi.ProcessStats{ProcessCount: &processes},
		Containers: []statsapi.ContainerStats{{Name: "c", Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory}, Rootfs: bytesOf(layer), Logs: bytesOf(logs)}},
	}
	sum := layer + logs
	for volume, n := range volumes {
		out.VolumeStats = append(out.VolumeStats, statsapi.VolumeStats{Name: volume, FsStats: *bytesOf(n)})
		sum += n
	}
	out.EphemeralStorage = bytesOf(sum)
	return out
}

func figures(all ...*statsapi.PodStats) Figures {
	out := Figures{}
	for _, s := range all {
		out[s.PodRef.UID] = s
	}
	return out
}

func emptyDir(name, limit string, medium v1.StorageMedium) v1.Volume {
	source := &v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}}
}

// met is a hard threshold that is met.
func met(signal, text string, percent float64, available, capacity uint64) pressure.Met {
	t := threshold.Threshold{Signal: signal, Text: text, Hard: true, Amount: threshold.Amount{Percent: percent}}
	if text != "" {
		q := resource.MustParse(text)
		t.Quantity = uint64(q.Value())
	}
	return pressure.Met{Threshold: t, By: pressure.Signal{Name: signal, Available: available, Capacity: capacity}}
}
