package cgroup

import (
	"os"
	"testing"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/container/libcontainer"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ownCgroup makes a cgroup for the test with one process in it, in every hierarchy.
func ownCgroup(t *testing.T, h *Hierarchy) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	name := "/polylet-test-" + t.Name()
	made := false
	for controller := range h.mounts {
		dir := h.Dir(controller, name)
		if err := os.MkdirAll(dir, 0o755); err == nil {
			made = true
			t.Cleanup(func() {
				if err := os.Remove(dir); err != nil {
					t.Errorf("remove %s: %v", dir, err)
				}
			})
		}
	}
	if !made {
		t.Skip("no cgroup can be made here")
	}
	return name
}

func TestCadvisorsOwnHandlerReadsTheSameValues(t *testing.T) {
	h, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	name := ownCgroup(t, h)
	included := container.MetricSet{
		container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {}, container.ProcessMetrics: {}, container.PressureMetrics: {},
	}
	mounts, err := libcontainer.GetCgroupSubsystems(included)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := libcontainer.NewCgroupManager(name, common.MakeCgroupPaths(mounts, name))
	if err != nil {
		t.Fatal(err)
	}
	want, err := libcontainer.NewHandler(manager, "/", 0, included).GetStats()
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Read(name, All)
	if err != nil {
		t.Fatal(err)
	}
	// An unlimited number of threads is 0 in both, through different paths; the
	// time differs by nature; what only cAdvisor has is not in the kubelet's document.
	ignore := cmp.Options{
		cmpopts.IgnoreFields(model.ContainerStats{}, "Timestamp"),
		cmpopts.IgnoreFields(model.MemoryStats{}, "FileDirty", "FileWriteback", "Pgscan", "Pgsteal", "WorkingsetRefaultFile", "WorkingsetRefaultAnon", "Events"),
		cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("our reading differs from cAdvisor's (-cAdvisor +ours):\n%s", diff)
	}
	wantSpec, err := common.GetSpec(common.MakeCgroupPaths(mounts, name), noMachine{}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	gotSpec := h.Spec(name)
	ignoreSpec := cmp.Options{
		cmpopts.IgnoreFields(model.ContainerSpec{}, "HasHugetlb", "HasProcesses", "HasDiskIo", "Processes", "CreationTime"),
		cmpopts.IgnoreFields(model.CpuSpec{}, "Mask"),
	}
	if diff := cmp.Diff(wantSpec, gotSpec, ignoreSpec); diff != "" {
		t.Errorf("our limits differ from cAdvisor's (-cAdvisor +ours):\n%s", diff)
	}
}

type noMachine struct{}

func (noMachine) GetMachineInfo() (*model.MachineInfo, error) {
	return &model.MachineInfo{NumCores: 1}, nil
}
func (noMachine) GetVersionInfo() (*model.VersionInfo, error) { return &model.VersionInfo{}, nil }

func BenchmarkReading(b *testing.B) {
	h, err := Detect()
	if err != nil {
		b.Skip(err)
	}
	for name, parts := range map[string]Part{"CPUAndMemory": 0, "All": All} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Read("/", parts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
