package collector

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// cgroups has the working set of each cgroup; those of all pods have a limit.
type cgroups map[string]uint64

func (c cgroups) Exists(name string) bool { return c[name] > 0 }

func (c cgroups) Walk(root string, _ func(string) bool) ([]string, error) {
	if !c.Exists(root) {
		return nil, nil
	}
	return []string{root}, nil
}

func (c cgroups) Read(name string, _ cgroup.Part) (*model.ContainerStats, error) {
	used, ok := c[name]
	if !ok {
		return nil, os.ErrNotExist
	}
	return &model.ContainerStats{Timestamp: time.Unix(1000, 0), Cpu: &model.CpuStats{}, Memory: &model.MemoryStats{WorkingSet: used}}, nil
}

func (c cgroups) MemoryLimit(name string) uint64 {
	if name == "/" {
		return 1 << 63
	}
	return 1 << 30
}

func (c cgroups) CPU(string) (uint64, bool)       { return 0, false }
func (c cgroups) Spec(string) model.ContainerSpec { return model.ContainerSpec{} }
func (c cgroups) SwapLimit(string) (uint64, bool) { return 0, false }
func (c cgroups) Created(string) time.Time        { return time.Unix(1, 0) }
func (c cgroups) Threads(string) uint64           { return 1 }
func (c cgroups) ThreadsMax(string) uint64        { return 1 }
func (c cgroups) PIDs(string) []int               { return nil }

// newCollector is one of a node whose root directory is of the test's own; usage
// is what the runtime says.
func newCollector(t *testing.T, proc process.Proc, usage disk.RuntimeUsage) (*Collector, *inventory.Table) {
	t.Helper()
	names, description := &inventory.Table{}, machine.New(time.Hour)
	meter := sampler.New(sampler.Roots{Pods: "/kubepods"}, sampler.Deps{
		Cgroups: cgroups{"/": 2 << 20, "/kubepods": 1 << 20, "/moved": 3 << 20}, Names: names, Proc: proc, Machine: description,
	})
	return New(Config{NodeName: "n1", RootDir: t.TempDir(), PodsCgroup: "/kubepods", CgroupVersion: 2}, Deps{
		Meter: meter, Names: names, Proc: proc, Machine: description,
		Runtime: disk.NewRuntime(time.Second, func(context.Context) (disk.RuntimeUsage, error) { return usage, nil }),
		Driven: disk.NewDrivens(disk.DrivenConfig{Period: time.Minute, Deadline: time.Second}, func(_ context.Context, v disk.Volume) (disk.Driven, error) {
			abnormal := true
			return disk.Driven{Abnormal: &abnormal, Measured: disk.Measured{Tree: disk.Tree{Bytes: 5, Inodes: 2}, Filesystem: disk.Filesystem{Capacity: 10, Available: 4}}}, nil
		}),
		Directories: disk.NewTrees(disk.TreesConfig{Period: time.Minute, Deadline: time.Second, Forget: time.Hour, Measured: func(disk.Directory, time.Duration) {}}),
	}), names
}

func pod() inventory.PresentPod {
	return inventory.PresentPod{
		Sandbox:    inventory.Sandbox{Pod: inventory.Pod{Namespace: "ns", Name: "pod", UID: "u"}},
		Containers: []inventory.Container{{Name: "first"}, {Name: "second", LogDir: "/logs/pod/second"}},
		Volumes: []inventory.Volume{
			{Name: "scratch", HostPath: "/v/scratch", Ephemeral: true},
			{Name: "memory", HostPath: "/v/memory", Ephemeral: true, InMemory: true},
			{Name: "data", HostPath: "/v/data", PVC: "claim"},
			{Name: "elsewhere"},
			{Name: "disk", HostPath: "/v/disk"}, // of an iSCSI target, in the pod's own spec
		},
	}
}

func TestOfAVolumeThatItsFilesystemCountsThatIsAsked(t *testing.T) {
	p := pod()
	p.Volumes = []inventory.Volume{{Name: "scratch", HostPath: "/v/scratch", Ephemeral: true, Counted: true}}
	p.Containers = nil
	want := []disk.Directory{{Path: "/v/scratch", Namespace: "ns", Counted: disk.Volume{PodUID: "u", Name: "scratch"}}}
	if diff := cmp.Diff(want, directories([]inventory.PresentPod{p})); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsAMountOfItsOwnIsNotWalked(t *testing.T) {
	want := []disk.Directory{
		{Path: "/logs/pod/second", Namespace: "ns"},
		{Path: "/v/scratch", Namespace: "ns"},
		{Path: "/v/memory", Namespace: "ns", FilesystemOnly: true, OwnMount: true},
		{Path: "/v/data", Namespace: "ns", FilesystemOnly: true},
		{Path: "/v/disk", Namespace: "ns", FilesystemOnly: true},
	}
	if diff := cmp.Diff(want, directories([]inventory.PresentPod{pod()})); diff != "" {
		t.Error(diff)
	}
}

func TestAPodsOwnFilesAreItsHostsFileItsMessagesAndItsLogs(t *testing.T) {
	c := New(Config{RootDir: "/root"}, Deps{})
	want := []disk.Directory{
		{Path: "/root/pods/u/etc-hosts", Namespace: "ns", Flat: true},
		{Path: "/root/pods/u/containers/first", Namespace: "ns", Flat: true},
		{Path: "/root/pods/u/containers/second", Namespace: "ns", Flat: true},
		{Path: "/logs/pod", Namespace: "ns", Flat: true},
	}
	if diff := cmp.Diff(want, c.own(pod())); diff != "" {
		t.Error(diff)
	}
}

func TestWhoAsksForCPUAndMemoryOnlyGetsNoDisk(t *testing.T) {
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{})
	for only, disks := range map[bool]bool{true: false, false: true} {
		facts, err := c.Summary(t.Context(), Asked{OnlyCPUAndMemory: only})
		if err != nil || (facts.Disk != nil) != disks {
			t.Errorf("only CPU and memory is %t: disk %v, %v", only, facts.Disk, err)
		}
	}
}

func TestWhatIsLeftOnDisksIsMeasuredAfterAllThatIsWaitedFor(t *testing.T) {
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{}) // nobody measures its directories
	began := time.Now()
	out, err := c.disk(t.Context(), []inventory.PresentPod{pod()}, Asked{})
	if err != nil || out.Time.Sub(began) < waitTimeout || out.Root.Capacity == 0 {
		t.Errorf("after %s, %v", out.Time.Sub(began), err)
	}
}

// As when its disk is full: who goes would be chosen by what directories held before.
func TestARuntimeThatDoesNotAnswerTakesNoTimeOfDirectories(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCollector(t, "/proc", disk.RuntimeUsage{})
		c.deps.Runtime = disk.NewRuntime(time.Minute, func(ctx context.Context) (disk.RuntimeUsage, error) {
			<-ctx.Done()
			return disk.RuntimeUsage{}, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = c.deps.Directories.Run(ctx) }() // It ends with ctx.
		p := pod()
		p.Volumes = []inventory.Volume{{Name: "scratch", HostPath: dir, Ephemeral: true}}
		out, err := c.disk(ctx, []inventory.PresentPod{p}, Asked{Renew: true})
		if _, measured := out.Directories[dir]; err != nil || !measured {
			t.Errorf("measured %v, %v", out.Directories, err)
		}
		time.Sleep(time.Minute) // Until the runtime's time is over.
	})
}

func TestTheCgroupOfAllPodsIsWherePodsyncSaysThatItIs(t *testing.T) {
	c, names := newCollector(t, "/proc", disk.RuntimeUsage{})
	for _, want := range []string{"/kubepods", "/moved"} {
		facts, err := c.Summary(t.Context(), Asked{OnlyCPUAndMemory: true})
		if err != nil || len(facts.System) != 1 || facts.System[0].Cgroup != want {
			t.Errorf("%+v, %v; want %s", facts.System, err, want)
		}
		names.Apply(inventory.Change{PodsCgroup: "/moved"})
	}
}

func TestWithoutAFilesystemOfContainersItIsThatOfImages(t *testing.T) {
	images := []disk.Usage{{Mountpoint: "/nowhere/at/all"}, {Mountpoint: "/"}}
	for name, tc := range map[string]struct {
		usage disk.RuntimeUsage
		want  []string
	}{
		"the runtime names none":   {disk.RuntimeUsage{}, nil},
		"that of images only":      {disk.RuntimeUsage{Images: images}, []string{"containerfs.available", "imagefs.available"}},
		"that of containers, too":  {disk.RuntimeUsage{Images: images, Containers: images}, []string{"containerfs.available", "imagefs.available"}},
		"that of containers alone": {disk.RuntimeUsage{Containers: images}, []string{"containerfs.available"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCollector(t, "/proc", tc.usage)
			frame, err := c.Signals(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range frame.Signals {
				if strings.HasPrefix(s.Name, "nodefs") || strings.HasSuffix(s.Name, "inodesFree") {
					continue
				}
				switch {
				case strings.Contains(s.Name, "fs"):
					got = append(got, s.Name)
				case s.Name == "allocatableMemory.available" && s.Available != 1<<30-1<<20:
					t.Errorf("%+v", s)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithoutTheMachinesFilesThereIsNoSummary(t *testing.T) {
	c, _ := newCollector(t, process.Proc(filepath.Join(t.TempDir(), "proc")), disk.RuntimeUsage{})
	if _, err := c.Summary(t.Context(), Asked{OnlyCPUAndMemory: true}); err == nil {
		t.Error("the machine's start is not known, and there is a summary")
	}
}

func TestThreadsAreThoseOfPodsCgroupsWithAllBelow(t *testing.T) {
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{})
	whose := inventory.Pod{Namespace: "ns", Name: "pod", UID: "u"}
	got := c.Threads([]sampler.Row{
		{Target: sampler.Target{Cgroup: "/", Kind: sampler.Machine}},
		{Target: sampler.Target{Cgroup: "/kubepods/pod-u", Kind: sampler.Pod, Pod: whose}},
		{Target: sampler.Target{Cgroup: "/kubepods/pod-u/c", Kind: sampler.Container, Pod: whose}},
		{Target: sampler.Target{Cgroup: "/kubepods/pod-v", Kind: sampler.Pod}},
	})
	if diff := cmp.Diff(map[string]uint64{"u": 1}, got); diff != "" {
		t.Error(diff)
	}
}
