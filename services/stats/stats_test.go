package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sandboxID   = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	containerID = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// podsync answers as the real one would for one pod.
type podsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	volume, logs, podsCgroup string
}

func (p *podsync) WatchContainers(_ *podsyncv1.WatchContainersRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchContainersResponse]) error {
	pod := &podsyncv1.PodRef{Namespace: "shop", Name: "web-0", Uid: "1-2"}
	err := stream.Send(&podsyncv1.WatchContainersResponse{
		Epoch: 1, Revision: 1, Snapshot: true, PodsCgroup: p.podsCgroup,
		Sandboxes: []*podsyncv1.Sandbox{{Id: sandboxID, Pod: pod, Ready: true, CreateTime: timestamppb.Now()}},
		Containers: []*podsyncv1.Container{{
			Id: containerID, SandboxId: sandboxID, Pod: pod, Name: "web", Image: "registry.local/web:1",
			State: podsyncv1.ContainerState_CONTAINER_STATE_RUNNING, StartTime: timestamppb.Now(), LogDir: p.logs,
		}},
		Volumes: []*podsyncv1.PodVolumes{{Pod: pod, Volumes: []*podsyncv1.Volume{{Name: "scratch", HostPath: p.volume, Ephemeral: true}, {Name: "data", HostPath: "/", PvcName: "claim"}, {Name: "driven", PvcName: "other", Driven: true}}}},
	})
	if err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *podsync) ListFilesystemUsage(context.Context, *podsyncv1.ListFilesystemUsageRequest) (*podsyncv1.ListFilesystemUsageResponse, error) {
	return &podsyncv1.ListFilesystemUsageResponse{
		WritableLayers:   []*podsyncv1.WritableLayer{{ContainerId: containerID, Usage: &podsyncv1.FilesystemUsage{UsedBytes: 4096, InodesUsed: 2}}},
		ImageFilesystems: []*podsyncv1.FilesystemUsage{{Mountpoint: p.volume, UsedBytes: 1 << 20, InodesUsed: 10}},
	}, nil
}

func (p *podsync) GetVolumeUsage(context.Context, *podsyncv1.GetVolumeUsageRequest) (*podsyncv1.GetVolumeUsageResponse, error) {
	return &podsyncv1.GetVolumeUsageResponse{Driver: "csi.example.com", CapacityBytes: 10, UsedBytes: 4, Condition: &podsyncv1.VolumeCondition{}}, nil
}

// node is a stats service over real cgroups of the test's own.
type node struct {
	client  statsv1.StatsServiceClient
	names   func() int
	pid     int
	metrics *metricdoc.Recorder
}

func start(t *testing.T) node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	hierarchy, err := cgroup.Detect()
	if err != nil {
		t.Skip(err)
	}
	cgroupRoot := fmt.Sprintf("/polylet-stats-test-%d", os.Getpid())
	process := sleeper(t)
	makeCgroups(t, hierarchy, cgroupRoot, process)
	peer := &podsync{volume: t.TempDir(), logs: t.TempDir(), podsCgroup: cgroupRoot + "/kubepods"}
	root := t.TempDir()
	own := filepath.Join(root, "pods", "1-2")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(own, "containers", "web"), 0o750),
		os.WriteFile(filepath.Join(own, "etc-hosts"), make([]byte, 1<<20), 0o644), os.WriteFile(filepath.Join(own, "containers", "web", "0a1b"), make([]byte, 1<<19), 0o644),
		os.WriteFile(filepath.Join(peer.volume, "file"), make([]byte, 1<<20), 0o644), os.WriteFile(filepath.Join(peer.logs, "0.log"), make([]byte, 8192), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	conn := grpctest.Serve(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, peer) })
	metrics := metricdoc.New()
	// The configuration has another driver than the runtime, which podsync has asked.
	service, err := New(Config{NodeName: "n1", RootDir: root, CgroupRoot: cgroupRoot, SystemdCgroups: true}, Deps{Podsync: conn, Cgroups: hierarchy, Epoch: 42, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	out := node{metrics: metrics, pid: process, names: func() int { return len(service.names.View().Containers) }}
	out.client = statsv1.NewStatsServiceClient(grpctest.Serve(t, func(s *grpc.Server) { service.Register(s) }))
	eventually.True(t, "podsync's names did not arrive", func() bool { return out.names() > 0 })
	return out
}

func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // It may have ended.
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// makeCgroups makes a pod's cgroups, and puts the process into its sandbox's.
func makeCgroups(t *testing.T, h *cgroup.Hierarchy, root string, pid int) {
	t.Helper()
	names := []string{root, root + "/kubepods", root + "/kubepods/pod1-2", root + "/kubepods/pod1-2/" + sandboxID, root + "/kubepods/pod1-2/" + containerID}
	controllers := []string{"cpu", "cpuacct", "memory", "blkio", "pids"}
	if h.Unified() {
		controllers = []string{""}
	}
	for _, controller := range controllers {
		if h.Dir(controller, "/") == "" {
			continue
		}
		var made []string
		for _, name := range names {
			dir := h.Dir(controller, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Skipf("no cgroup can be made here: %v", err)
			}
			made = append(made, dir)
		}
		procs := filepath.Join(made[3], "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			home := filepath.Join(h.Dir(controller, "/"), "cgroup.procs")
			_ = os.WriteFile(home, []byte(strconv.Itoa(pid)), 0o644) // The process goes back, if it is still there.
			for i := len(made) - 1; i >= 0; i-- {
				if err := os.Remove(made[i]); err != nil {
					t.Errorf("remove %s: %v", made[i], err)
				}
			}
		})
	}
}

func TestTheSummaryShowsARealCgroupUnderItsPodsName(t *testing.T) {
	n := start(t)
	r, err := n.client.GetSummary(t.Context(), &statsv1.GetSummaryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var s statsapi.Summary
	if err := json.Unmarshal(r.GetSummaryJson(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node.NodeName != "n1" || *s.Node.Memory.WorkingSetBytes == 0 || *s.Node.CPU.UsageCoreNanoSeconds == 0 || *s.Node.Fs.CapacityBytes == 0 {
		t.Errorf("node %+v", s.Node)
	}
	if s.Node.CPU.PSI == nil || s.Node.Memory.PSI == nil || s.Pods[0].CPU.PSI == nil {
		t.Error("no pressure is shown; where the kernel counts none it is zero")
	}
	if s.Node.Runtime == nil || *s.Node.Runtime.ImageFs.UsedBytes != 1<<20 {
		t.Errorf("image filesystem %+v; want the runtime's account", s.Node.Runtime)
	}
	if len(s.Pods) != 1 || s.Pods[0].PodRef.Name != "web-0" || len(s.Pods[0].Containers) != 1 {
		t.Fatalf("pods %+v; want web-0 with one container", s.Pods)
	}
	pod := s.Pods[0]
	if *pod.ProcessStats.ProcessCount != 1 || pod.Memory == nil || pod.CPU == nil || pod.Network == nil {
		t.Errorf("pod %+v; want one process, CPU, memory and the network of its process", pod)
	}
	if n := len(r.GetThreads()); n != 0 {
		t.Errorf("%d pods' threads are counted, and nobody asked", n)
	}
	if r, err := n.client.GetSummary(t.Context(), &statsv1.GetSummaryRequest{CountThreads: true}); err != nil || r.GetThreads()[pod.PodRef.UID] != 1 {
		t.Errorf("threads %v, %v; want one of the pod", r.GetThreads(), err)
	}
	if got := *pod.Containers[0].Rootfs.UsedBytes; got != 4096 {
		t.Errorf("writable layer %d bytes; want 4096", got)
	}
	if got := *pod.Containers[0].Logs.UsedBytes; got < 8192 {
		t.Errorf("logs %d bytes; want at least 8192", got)
	}
	if len(pod.VolumeStats) != 3 || *pod.VolumeStats[0].UsedBytes < 1<<20 || pod.VolumeStats[1].PVCRef == nil || *pod.VolumeStats[2].UsedBytes != 4 {
		t.Errorf("volumes %+v; want one of a MiB, a claim and one that its driver measures", pod.VolumeStats)
	}
	known := *pod.Containers[0].Rootfs.UsedBytes + *pod.Containers[0].Logs.UsedBytes + *pod.VolumeStats[0].UsedBytes
	if got := *pod.EphemeralStorage.UsedBytes - known; got < 1<<20+1<<19 || got > 2<<20 {
		t.Errorf("ephemeral storage holds %d bytes beside volume, layer and log; want the hosts file's MiB and the termination log's half", got)
	}
}

func text(t *testing.T, n node, document statsv1.MetricsDocument) string {
	t.Helper()
	stream, err := n.client.GetMetricsText(t.Context(), &statsv1.GetMetricsTextRequest{Document: document})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for first := true; ; first = false {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if first && !strings.HasPrefix(piece.GetContentType(), "text/plain; version=0.0.4") {
			t.Errorf("content type %q", piece.GetContentType())
		}
		out.Write(piece.GetData())
	}
}

func TestTheMetricDocumentsNameARealCgroup(t *testing.T) {
	n := start(t)
	cadvisor := text(t, n, statsv1.MetricsDocument_METRICS_DOCUMENT_CADVISOR)
	for _, want := range []string{
		`container_memory_working_set_bytes{container="web",id="/polylet-stats-test-` + strconv.Itoa(os.Getpid()) + `/kubepods/pod1-2/` + containerID +
			`",image="registry.local/web:1",name="` + containerID + `",namespace="shop",pod="web-0"}`,
		`/kubepods/pod1-2",image="",name="",namespace="shop",pod="web-0"}`,
		`container_processes{container="",id="/polylet-stats-test-` + strconv.Itoa(os.Getpid()) + `/kubepods/pod1-2/` + sandboxID + `",image="",name="` + sandboxID + `",namespace="shop",pod="web-0"} 1`,
		`container_memory_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""}`, "machine_cpu_cores{", "cadvisor_version_info{", "container_scrape_error 0",
	} {
		if !strings.Contains(cadvisor, want) {
			t.Errorf("no %s in /metrics/cadvisor", want)
		}
	}
	resource := text(t, n, statsv1.MetricsDocument_METRICS_DOCUMENT_RESOURCE)
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-0"}`, `pod_memory_working_set_bytes{namespace="shop",pod="web-0"}`, "node_cpu_usage_seconds_total ", "resource_scrape_error 0",
	} {
		if !strings.Contains(resource, want) {
			t.Errorf("no %s in /metrics/resource:\n%s", want, resource)
		}
	}
}

func TestTheMachineAndTheSignalsAreThoseOfThisMachine(t *testing.T) {
	n := start(t)
	machine, err := n.client.GetMachine(t.Context(), &statsv1.GetMachineRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if machine.GetNumCores() < 1 || machine.GetMemoryCapacityBytes() == 0 || machine.GetBootId() == "" || machine.GetMaxPid() == 0 || machine.GetRootFsCapacityBytes() == 0 {
		t.Errorf("machine %+v", machine)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := n.client.WatchSignals(ctx, &statsv1.WatchSignalsRequest{Period: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	frame, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*statsv1.Signal{}
	for _, s := range frame.GetSignals() {
		got[s.GetName()] = s
	}
	for _, name := range []string{"memory.available", "nodefs.available", "imagefs.available", "containerfs.available", "pid.available"} {
		if s := got[name]; s == nil || s.GetAvailable() == 0 || s.GetCapacity() < s.GetAvailable() {
			t.Errorf("signal %s is %v", name, s)
		}
	}
	if frame.GetEpoch() != 42 {
		t.Errorf("epoch %d; want 42", frame.GetEpoch())
	}
	tooOften, err := n.client.WatchSignals(ctx, &statsv1.WatchSignalsRequest{Period: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	if frame, err := tooOften.Recv(); err == nil {
		t.Errorf("a period of a millisecond was taken: %v", frame)
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for name, cfg := range map[string]Config{"no name": {RootDir: "/x"}, "relative root": {NodeName: "n", RootDir: "x"}} {
		if _, err := New(cfg, Deps{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTheMetricsAreAsRecorded(t *testing.T) {
	n := start(t)
	if _, err := n.client.GetSummary(t.Context(), &statsv1.GetSummaryRequest{}); err != nil {
		t.Fatal(err) // It has the directories measured.
	}
	golden.Lines(t, "testdata/metrics.golden", n.metrics.Text())
}

// limitMemory gives the pod's container a limit that no more than a shell fits into.
func limitMemory(t *testing.T, h *cgroup.Hierarchy, name string) (procs string) {
	t.Helper()
	controller, file := "memory", "memory.limit_in_bytes"
	if h.Unified() {
		controller, file = "", "memory.max"
	}
	dir := h.Dir(controller, name)
	if err := os.WriteFile(filepath.Join(dir, file), []byte("16777216"), 0o644); err != nil {
		t.Skipf("no memory limit can be set here: %v", err)
	}
	return filepath.Join(dir, "cgroup.procs")
}

func TestAKillOfTheRealKernelIsToldWithItsPod(t *testing.T) {
	n := start(t)
	hierarchy, err := cgroup.Detect()
	if err != nil {
		t.Skip(err)
	}
	if log, err := kernellog.Open(); err != nil {
		t.Skip(err)
	} else if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	procs := limitMemory(t, hierarchy, fmt.Sprintf("/polylet-stats-test-%d/kubepods/pod1-2/%s", os.Getpid(), containerID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := n.client.WatchOOMKills(ctx, &statsv1.WatchOOMKillsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	eater := exec.Command("sh", "-c", `echo $$ > "$0" && exec tail /dev/zero`, procs)
	if err := eater.Start(); err != nil {
		t.Fatal(err)
	}
	if err := eater.Wait(); err == nil {
		t.Fatal("a process with more memory than its cgroup's was not killed")
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			t.Fatalf("the kill was not told: %v", err)
		}
		for _, k := range frame.GetKills() {
			if int(k.GetPid()) != eater.Process.Pid || time.Since(k.GetTime().AsTime()) > time.Minute {
				continue
			}
			if k.GetProcess() != "tail" || k.GetSystem() || k.GetPodName() != "web-0" || k.GetContainer() != "web" {
				t.Errorf("%v", k)
			}
			return
		}
	}
}
