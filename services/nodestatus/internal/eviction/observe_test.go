package eviction

import (
	"slices"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestASummaryConfirmsWhatIsShortOrDoesNot(t *testing.T) {
	available, used, files, all, most, running := uint64(50*mi), uint64(50*mi), uint64(7), uint64(100), int64(1000), int64(1200)
	memory := &statsapi.MemoryStats{AvailableBytes: &available, WorkingSetBytes: &used}
	fs := &statsapi.FsStats{AvailableBytes: &available, CapacityBytes: &available, InodesFree: &files, Inodes: &all}
	observed := Observe(&statsapi.Summary{Node: statsapi.NodeStats{
		Memory: memory, SystemContainers: []statsapi.ContainerStats{{Name: "kubelet", Memory: memory}, {Name: "pods", Memory: memory}}, Fs: fs,
		Runtime: &statsapi.RuntimeStats{ImageFs: fs, ContainerFs: &statsapi.FsStats{}}, Rlimit: &statsapi.RlimitStats{MaxPID: &most, NumOfRunningProcesses: &running},
	}})
	var names []string
	for _, s := range observed {
		names = append(names, s.Name)
	}
	want := []string{
		"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available",
	}
	if !slices.Equal(names, want) {
		t.Fatalf("%v", names)
	}
	if m, short := Confirm(met("memory.available", "51Mi", 0, 1, 9), observed); !short || m.By.Available != available || m.By.Capacity != 100*mi {
		t.Errorf("%+v, %t", m.By, short)
	}
	if _, short := Confirm(met("memory.available", "50Mi", 0, 1, 9), observed); short {
		t.Error("it is not short of memory")
	}
	enough := met("memory.available", "50Mi", 0, 1, 9)
	enough.Reclaim.Quantity = 1
	if _, short := Confirm(enough, observed); !short {
		t.Error("what has to be reclaimed is not there")
	}
	if _, short := Confirm(met("containerfs.available", "50Mi", 0, 1, 9), observed); short {
		t.Error("nothing is said of containers' filesystem")
	}
	if m, short := Confirm(met("pid.available", "1", 0, 1, 9), observed); !short || m.By.Available != 0 {
		t.Errorf("%+v, %t", m.By, short)
	}
}
