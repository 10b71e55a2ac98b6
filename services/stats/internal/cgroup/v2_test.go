package cgroup

import (
	"testing"

	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
)

func TestVersion2FilesAreReadIntoCadvisorsModel(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"pod/cpu.stat":            "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 7\nnr_throttled 2\nthrottled_usec 30\nnr_bursts 1\nburst_usec 4\n",
		"pod/memory.stat":         "anon 1000\nfile 500\nfile_mapped 40\npgfault 9\npgmajfault 3\nactive_file 60\ninactive_file 400\n",
		"pod/memory.current":      "2000\n",
		"pod/memory.swap.current": "70\n",
		"pod/memory.peak":         "3000\n",
		"pod/memory.events.local": "low 0\nhigh 1\nmax 9\noom 3\noom_kill 2\n",
		"pod/memory.max":          "max\n",
		"pod/memory.min":          "5\n",
		"pod/memory.swap.max":     "4096\n",
		"pod/io.stat":             "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1\n",
		"pod/cpu.pressure":        "some avg10=1.50 avg60=0.25 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n",
		"pod/pids.current":        "11\n",
		"pod/pids.max":            "max\n",
		"pod/cgroup.procs":        "4\n5\n",
		"pod/cpu.weight":          "100\n",
		"pod/cpu.max":             "50000 100000\n",
	})
	h := New(true, map[string]string{"": dir})
	s, err := h.Read("/pod", All)
	if err != nil {
		t.Fatal(err)
	}
	wantCPU := &model.CpuStats{
		Usage: model.CpuUsage{Total: 1_500_000, User: 1_000_000, System: 500_000},
		CFS:   model.CpuCFS{Periods: 7, ThrottledPeriods: 2, ThrottledTime: 30_000, BurstsPeriods: 1, BurstTime: 4_000},
		PSI:   model.PSIStats{Some: model.PSIData{Avg10: 1.5, Avg60: 0.25, Total: 123}, Full: model.PSIData{Total: 45}},
	}
	if diff := cmp.Diff(wantCPU, s.Cpu); diff != "" {
		t.Errorf("CPU (-want +got):\n%s", diff)
	}
	faults := model.MemoryStatsMemoryData{Pgfault: 9, Pgmajfault: 3}
	wantMemory := &model.MemoryStats{
		Usage: 2000, MaxUsage: 3000, Cache: 500, RSS: 1000, Swap: 70, MappedFile: 40, WorkingSet: 1600,
		TotalActiveFile: 60, TotalInactiveFile: 400, ContainerData: faults, HierarchicalData: faults,
	}
	if diff := cmp.Diff(wantMemory, s.Memory); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	if s.OOMEvents != 2 {
		t.Errorf("%d OOM kills; want 2", s.OOMEvents)
	}
	wantBytes := []model.PerDiskStats{
		{Major: 8, Minor: 0, Stats: map[string]uint64{"Read": 10, "Write": 20}}, {Major: 8, Minor: 16, Stats: map[string]uint64{"Read": 1}},
	}
	if diff := cmp.Diff(wantBytes, s.DiskIo.IoServiceBytes); diff != "" {
		t.Errorf("disk (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&model.ProcessStats{ProcessCount: 2, ThreadsCurrent: 11}, s.Processes); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	spec := h.Spec("/pod")
	if diff := cmp.Diff(model.CpuSpec{Limit: 2597, Quota: 50000, Period: 100000}, spec.Cpu); diff != "" {
		t.Errorf("CPU limits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(model.MemorySpec{Limit: unlimited, Reservation: 5, SwapLimit: 4096}, spec.Memory); diff != "" {
		t.Errorf("memory limits (-want +got):\n%s", diff)
	}
	if limit, limited := h.SwapLimit("/pod"); limit != 4096 || !limited {
		t.Errorf("swap limit %d, limited %t; want 4096, true", limit, limited)
	}
}

func TestTheRootOfVersion2CountsAnonymousAndFilePages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"cpu.stat": "usage_usec 1\n", "memory.stat": "anon 1000\nfile 500\ninactive_file 200\n"})
	s, err := New(true, map[string]string{"": dir}).Read("/", 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Memory.Usage != 1500 || s.Memory.WorkingSet != 1300 {
		t.Errorf("usage %d, working set %d; want 1500, 1300", s.Memory.Usage, s.Memory.WorkingSet)
	}
}
