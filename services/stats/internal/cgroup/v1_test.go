package cgroup

import (
	"path/filepath"
	"testing"

	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
)

func TestVersion1FilesAreReadIntoCadvisorsModel(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"cpuacct/pod/cpuacct.usage":                           "12345\n",
		"cpuacct/pod/cpuacct.stat":                            "user 3\nsystem 2\n",
		"cpu/pod/cpu.stat":                                    "nr_periods 5\nnr_throttled 1\nthrottled_time 99\n",
		"cpu/pod/cpu.shares":                                  "512\n",
		"cpu/pod/cpu.cfs_period_us":                           "100000\n",
		"cpu/pod/cpu.cfs_quota_us":                            "-1\n",
		"cpu/pod/cgroup.procs":                                "1\n",
		"memory/pod/memory.usage_in_bytes":                    "900\n",
		"memory/pod/memory.max_usage_in_bytes":                "950\n",
		"memory/pod/memory.failcnt":                           "6\n",
		"memory/pod/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"memory/pod/memory.limit_in_bytes":                    "9223372036854771712\n",
		"memory/pod/memory.memsw.limit_in_bytes":              "9223372036854771712\n",
		"memory/pod/memory.stat":                              "cache 1\nrss 2\ntotal_cache 300\ntotal_rss 400\ntotal_swap 8\ntotal_mapped_file 9\npgfault 21\npgmajfault 22\ntotal_active_file 31\ntotal_inactive_file 100\n",
		"blkio/pod/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
		"blkio/pod/blkio.throttle.io_service_bytes_recursive": "8:0 Read 512\n8:0 Write 1024\n8:0 Total 1536\nTotal 1536\n",
		"pids/pod/pids.current":                               "4\n",
		"pids/pod/pids.max":                                   "100\n",
	})
	mounts := map[string]string{}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "blkio", "pids"} {
		mounts[controller] = filepath.Join(dir, controller)
	}
	h := New(false, mounts)
	s, err := h.Read("/pod", All)
	if err != nil {
		t.Fatal(err)
	}
	wantCPU := &model.CpuStats{
		Usage: model.CpuUsage{Total: 12345, User: 30_000_000, System: 20_000_000},
		CFS:   model.CpuCFS{Periods: 5, ThrottledPeriods: 1, ThrottledTime: 99},
	}
	if diff := cmp.Diff(wantCPU, s.Cpu); diff != "" {
		t.Errorf("CPU (-want +got):\n%s", diff)
	}
	if s.Memory.WorkingSet != 800 || s.Memory.RSS != 400 || s.Memory.Cache != 300 || s.Memory.Swap != 8 || s.Memory.Failcnt != 6 {
		t.Errorf("memory %+v", s.Memory)
	}
	if got := s.DiskIo.IoServiceBytes; len(got) != 1 || got[0].Stats["Total"] != 1536 {
		t.Errorf("disk bytes %+v; want one device with 1536 in total", got)
	}
	if s.OOMEvents != 3 {
		t.Errorf("%d OOM kills; want 3", s.OOMEvents)
	}
	if s.Processes.ThreadsMax != 100 || s.Processes.ProcessCount != 1 {
		t.Errorf("processes %+v", s.Processes)
	}
	spec := h.Spec("/pod")
	if spec.Cpu.Quota != 0 || spec.Cpu.Limit != 512 || spec.Cpu.Period != 100000 {
		t.Errorf("CPU limits %+v; no quota was set", spec.Cpu)
	}
	if _, limited := h.SwapLimit("/pod"); limited {
		t.Error("swap is limited, though no limit was set")
	}
}
