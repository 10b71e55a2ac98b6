package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/google/cadvisor/lib/model"
)

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

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

func TestACgroupThatIsGoneIsAnErrorOfItsOwn(t *testing.T) {
	for name, h := range map[string]*Hierarchy{
		"v1": New(false, map[string]string{"cpuacct": t.TempDir(), "memory": t.TempDir()}), "v2": New(true, map[string]string{"": t.TempDir()}),
	} {
		if _, err := h.Read("/nothing", All); !errors.Is(err, ErrGone) {
			t.Errorf("%s: error %v; want ErrGone", name, err)
		}
	}
}

func TestWalkListsParentsFirstAndStopsAtLeaves(t *testing.T) {
	dir := t.TempDir()
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, name := range []string{"kubepods/burstable/poda/" + id + "/init.scope", "kubepods/podb", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := New(true, map[string]string{"": dir})
	got, err := h.Walk("/kubepods", LooksLikeContainer)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/kubepods", "/kubepods/burstable", "/kubepods/burstable/poda", "/kubepods/burstable/poda/" + id, "/kubepods/podb"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	if got, err := h.Walk("/nothing", nil); err != nil || len(got) != 0 {
		t.Errorf("a cgroup that is not there: %v, %v; want nothing", got, err)
	}
}

func TestNamesOfCgroupsTellContainersAndPods(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, want := range map[string]struct {
		id, uid   string
		container bool
	}{
		"/kubepods/burstable/pod1-2/" + id:                                      {id: id, container: true},
		"/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-" + id + ".scope": {id: id, container: true},
		"/kubepods.slice/kubepods-pod1_2.slice/crio-" + id + ".scope":           {id: id, container: true},
		"/system.slice:cri-containerd:" + id:                                    {id: id, container: true},
		"/kubepods/besteffort/pod1-2":                                           {id: "pod1-2", uid: "1-2"},
		"/kubepods.slice/kubepods-burstable-pod1_2.slice":                       {id: "kubepods-burstable-pod1_2.slice", uid: "1-2"},
		"/kubepods/burstable":                                                   {id: "burstable"},
		"/kubepods.slice/kubepods-burstable.slice":                              {id: "kubepods-burstable.slice"},
	} {
		if got := ContainerID(name); got != want.id {
			t.Errorf("id of %s is %q; want %q", name, got, want.id)
		}
		if got := PodUID(name); got != want.uid && !want.container {
			t.Errorf("UID of %s is %q; want %q", name, got, want.uid)
		}
		if got := LooksLikeContainer(name); got != want.container {
			t.Errorf("%s looks like a container: %t; want %t", name, got, want.container)
		}
	}
}

func FuzzFilesOfAnyContentAreRead(f *testing.F) {
	f.Add([]byte("usage_usec 1\nuser_usec\n"), []byte("8:0 rbytes=1 x= =\n"), []byte("some avg10=. total=\n"))
	f.Fuzz(func(t *testing.T, pairs, disk, pressure []byte) {
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"cpu.stat": string(pairs), "memory.stat": string(pairs), "io.stat": string(disk), "cpu.pressure": string(pressure), "cgroup.procs": string(pairs),
		})
		if _, err := New(true, map[string]string{"": dir}).Read("/", All); err != nil {
			t.Fatalf("read: %v", err)
		}
	})
}
