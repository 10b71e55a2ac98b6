package summary

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func row(cgroup string, kind sampler.Kind, id string, pod inventory.Pod, n uint64) sampler.Row {
	return sampler.Row{
		Target: sampler.Target{Cgroup: cgroup, Kind: kind, ID: id, Pod: pod, StartTime: at.Add(-time.Minute)}, NanoCores: ptr(n), MemoryLimit: n * 10, SwapLimit: ptr(n),
		Stats: &model.ContainerStats{
			Timestamp: at, Cpu: &model.CpuStats{Usage: model.CpuUsage{Total: n * 100}, PSI: model.PSIStats{Some: model.PSIData{Total: n, Avg10: 1.5}}},
			Memory: &model.MemoryStats{Usage: n * 4, WorkingSet: n * 3, RSS: n * 2, Swap: n / 2, ContainerData: model.MemoryStatsMemoryData{Pgfault: n, Pgmajfault: 1}},
			DiskIo: &model.DiskIoStats{PSI: model.PSIStats{Full: model.PSIData{Total: n}}}, Processes: &model.ProcessStats{ProcessCount: 2},
		},
	}
}

func facts() Facts {
	pod := inventory.Pod{Namespace: "shop", Name: "web-0", UID: "u"}
	bare := inventory.Pod{Namespace: "shop", Name: "bare", UID: "v"}
	sandbox := row("/kubepods/podu/s", sampler.Sandbox, "s", pod, 1)
	sandbox.Stats.Network = &model.NetworkStats{Interfaces: []model.InterfaceStats{{Name: "net1", RxBytes: 1}, {Name: "eth0", RxBytes: 2, TxBytes: 3}}}
	fs := disk.Filesystem{Time: at, Capacity: 1000, Free: 600, Available: 500, Inodes: 100, InodesFree: 70}
	image := &RuntimeFilesystem{Filesystem: fs, Usage: disk.Usage{Time: at, Mountpoint: "/var/lib/runtime", Bytes: 44, Inodes: 4}}
	return Facts{
		NodeName: "n1", BootTime: at.Add(-time.Hour), System: []SystemContainer{{"pods", "/kubepods"}, {"runtime", "/absent"}},
		Rows: []sampler.Row{
			row("/", sampler.Machine, "", inventory.Pod{}, 100), row("/kubepods", sampler.Group, "", inventory.Pod{}, 50), row("/kubepods/podu", sampler.Pod, "", pod, 20), sandbox,
			row("/kubepods/podu/c", sampler.Container, "c", pod, 10), row("/x/d", sampler.Container, "d", bare, 8), row("/x/e", sampler.Container, "e", bare, 6),
		},
		Pods: []inventory.PresentPod{
			{Sandbox: inventory.Sandbox{ID: "t", Pod: bare, CreateTime: at}, Containers: []inventory.Container{{ID: "d", Name: "d", StartTime: at}, {ID: "e", Name: "e", StartTime: at}}},
			{
				Sandbox: inventory.Sandbox{ID: "s", Pod: pod, CreateTime: at}, Containers: []inventory.Container{{ID: "c", Name: "web", StartTime: at, LogDir: "/logs/c"}},
				Volumes: []inventory.Volume{
					{Name: "scratch", HostPath: "/v/scratch", Ephemeral: true}, {Name: "ram", HostPath: "/v/ram", Ephemeral: true, InMemory: true},
					{Name: "data", HostPath: "/v/data", PVC: "claim"}, {Name: "unmeasured", HostPath: "/v/none"},
				},
			},
		},
		Disk: &Disk{
			Root: fs, Image: image, Container: image, Layers: map[string]disk.Usage{"c": {Time: at, Bytes: 7, Inodes: 3}}, Numbers: process.Numbers{Running: 9, Max: 99}, Time: at,
			Own: map[string][]string{"u": {"/pods/u/etc-hosts", "/logs"}},
			Directories: map[string]disk.Measured{
				"/logs/c": {Tree: disk.Tree{Bytes: 5, Inodes: 2}, Filesystem: fs, Time: at}, "/v/scratch": {Tree: disk.Tree{Bytes: 11, Inodes: 1}, Filesystem: fs, Time: at},
				"/pods/u/etc-hosts": {Tree: disk.Tree{Bytes: 19, Inodes: 1}, Filesystem: fs, Time: at},
				"/v/ram":            {Tree: disk.Tree{Bytes: 13, Inodes: 1}, Filesystem: fs, Time: at}, "/v/data": {Tree: disk.Tree{Bytes: 17, Inodes: 1}, Filesystem: fs, Time: at},
			},
		},
	}
}

func TestTheSummaryIsAsRecorded(t *testing.T) {
	onlyCPU := facts()
	onlyCPU.Disk = nil
	for file, f := range map[string]Facts{"testdata/summary.golden": facts(), "testdata/cpu_and_memory.golden": onlyCPU} {
		got, err := json.MarshalIndent(Build(f), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, file, append(got, '\n'))
	}
}

func TestEphemeralStorageIsLayersLogsAndVolumesOnDisk(t *testing.T) {
	for _, pod := range Build(facts()).Pods {
		if pod.PodRef.Name != "web-0" {
			continue
		}
		// 7 of the layer, 5 of the log, 11 of the volume, 19 of the hosts file;
		// neither memory nor the claim.
		if got := *pod.EphemeralStorage.UsedBytes; got != 42 {
			t.Errorf("ephemeral storage %d bytes; want 42", got)
		}
		if len(pod.VolumeStats) != 3 {
			t.Errorf("%d volumes; want the three that were measured", len(pod.VolumeStats))
		}
		if pod.Network.Name != "eth0" || *pod.Network.RxBytes != 2 {
			t.Errorf("default interface %s; want eth0", pod.Network.Name)
		}
		return
	}
	t.Fatal("no such pod")
}

func TestAPodWithoutACgroupIsTheSumOfItsContainers(t *testing.T) {
	pod := Build(facts()).Pods[0]
	if pod.PodRef.Name != "bare" || *pod.CPU.UsageCoreNanoSeconds != 1400 || *pod.Memory.WorkingSetBytes != 42 {
		t.Errorf("pod %s: CPU %d, working set %d; want bare, 1400, 42", pod.PodRef.Name, *pod.CPU.UsageCoreNanoSeconds, *pod.Memory.WorkingSetBytes)
	}
}

func TestNothingMeasuredIsAnEmptyDocumentNotAnError(t *testing.T) {
	got := Build(Facts{NodeName: "n", BootTime: at, Pods: facts().Pods})
	if got.Node.CPU != nil || len(got.Pods) != 2 || got.Pods[0].CPU != nil {
		t.Errorf("document %+v", got)
	}
}
