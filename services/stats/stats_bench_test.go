package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/process"
)

// crowd is podsync with many pods of one container each.
type crowd struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	pods int
	dir  string
}

func uidOf(i int) string { return fmt.Sprintf("uid-%06d", i) }

func idOf(kind, i int) string { return fmt.Sprintf("%032x%032x", kind, i) }

func (c *crowd) WatchContainers(_ *podsyncv1.WatchContainersRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchContainersResponse]) error {
	frame := &podsyncv1.WatchContainersResponse{Epoch: 1, Revision: 1, Snapshot: true}
	for i := range c.pods {
		pod := &podsyncv1.PodRef{Namespace: "shop", Name: fmt.Sprintf("deployment-5d8f9c7b6-%05d", i), Uid: uidOf(i)}
		frame.Sandboxes = append(frame.Sandboxes, &podsyncv1.Sandbox{
			Id: idOf(1, i), Pod: pod, Ready: true, CreateTime: timestamppb.Now(), CgroupParent: "/kubepods/burstable/pod" + uidOf(i),
		})
		frame.Containers = append(frame.Containers, &podsyncv1.Container{
			Id: idOf(2, i), SandboxId: idOf(1, i), Pod: pod, Name: "server", Image: "registry.local/shop/server:v1.2.3",
			State: podsyncv1.ContainerState_CONTAINER_STATE_RUNNING, StartTime: timestamppb.Now(), LogDir: c.dir,
		})
		frame.Volumes = append(frame.Volumes, &podsyncv1.PodVolumes{Pod: pod, Volumes: []*podsyncv1.Volume{{Name: "kube-api-access", HostPath: c.dir, Ephemeral: true}}})
	}
	if err := stream.Send(frame); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (c *crowd) ListFilesystemUsage(context.Context, *podsyncv1.ListFilesystemUsageRequest) (*podsyncv1.ListFilesystemUsageResponse, error) {
	out := &podsyncv1.ListFilesystemUsageResponse{ImageFilesystems: []*podsyncv1.FilesystemUsage{{Mountpoint: c.dir, UsedBytes: 1 << 20, InodesUsed: 10}}}
	for i := range c.pods {
		out.WritableLayers = append(out.WritableLayers, &podsyncv1.WritableLayer{ContainerId: idOf(2, i), Usage: &podsyncv1.FilesystemUsage{UsedBytes: 4096, InodesUsed: 2}})
	}
	return out, nil
}

// tree makes a cgroup v2 hierarchy of plain files: what reading them costs is
// less than in the kernel's, what we make of them is the same.
func tree(b *testing.B, pods int) (*cgroup.Hierarchy, process.Proc) {
	b.Helper()
	root, proc := b.TempDir(), b.TempDir()
	files := map[string]string{
		"cpu.stat":    "usage_usec 151234567\nuser_usec 101234567\nsystem_usec 50000000\nnr_periods 7000\nnr_throttled 2\nthrottled_usec 30\nnr_bursts 0\nburst_usec 0\n",
		"memory.stat": "anon 104857600\nfile 52428800\nkernel 4000000\nkernel_stack 100000\npagetables 100000\nsock 0\nshmem 0\nfile_mapped 40960\nfile_dirty 0\nfile_writeback 0\nswapcached 0\nanon_thp 0\ninactive_anon 0\nactive_anon 104857600\ninactive_file 20000000\nactive_file 32000000\npgfault 900000\npgmajfault 30\n",

		"memory.current": "157286400\n", "memory.swap.current": "0\n", "memory.peak": "160000000\n", "memory.max": "268435456\n", "memory.min": "0\n", "memory.swap.max": "0\n",
		"memory.events.local": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n", "io.stat": "8:0 rbytes=1024000 wbytes=2048000 rios=100 wios=200 dbytes=0 dios=0\n",
		"cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n",
		"pids.current": "11\n", "pids.max": "max\n", "cgroup.procs": "7\n", "cpu.weight": "100\n", "cpu.max": "50000 100000\n", "cgroup.events": "populated 1\n",
	}
	files["memory.pressure"], files["io.pressure"] = files["cpu.pressure"], files["cpu.pressure"]
	put := func(dir string) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	put(root)
	put(filepath.Join(root, "kubepods"))
	put(filepath.Join(root, "kubepods/burstable"))
	for i := range pods {
		pod := filepath.Join(root, "kubepods/burstable/pod"+uidOf(i))
		put(pod)
		put(filepath.Join(pod, idOf(1, i)))
		put(filepath.Join(pod, idOf(2, i)))
	}
	fakeProc(b, proc)
	return cgroup.New(true, map[string]string{"": root}), process.Proc(proc)
}

func fakeProc(b *testing.B, dir string) {
	b.Helper()
	net := "Inter-|\n face |\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0\n"
	for name, text := range map[string]string{
		"1/net/dev": net, "7/net/dev": net, "1/limits": "Max open files 1024 1024 files\n", "7/limits": "Max open files 1024 1024 files\n",
		"7/fd/0": "", "7/fd/1": "", "7/fd/2": "", "stat": "btime 1700000000\n", "loadavg": "0 0 0 1/200 7\n",
		"sys/kernel/pid_max": "32768\n", "sys/kernel/threads-max": "32768\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
}

// busy is a stats service with many pods; every reading is a new one.
func busy(b *testing.B, pods int) statsv1.StatsServiceClient {
	b.Helper()
	hierarchy, proc := tree(b, pods)
	conn := grpctest.Serve(b, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, &crowd{pods: pods, dir: b.TempDir()}) })
	service, err := New(Config{NodeName: "n1", RootDir: b.TempDir()}, Deps{Podsync: conn, Cgroups: hierarchy, Proc: proc, Epoch: 1})
	if err != nil {
		b.Fatal(err)
	}
	service.meter.ShareFor(0)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	eventually.True(b, "podsync's names did not arrive", func() bool { return len(service.names.View().Containers) >= pods })
	return statsv1.NewStatsServiceClient(grpctest.Serve(b, func(s *grpc.Server) { service.Register(s) }))
}

func BenchmarkDocuments(b *testing.B) {
	for _, pods := range []int{10, 110, 500} {
		documents := map[string]func(*testing.B, statsv1.StatsServiceClient) int{
			"summary": func(b *testing.B, c statsv1.StatsServiceClient) int {
				r, err := c.GetSummary(b.Context(), &statsv1.GetSummaryRequest{})
				if err != nil {
					b.Fatal(err)
				}
				return len(r.GetSummaryJson())
			},
			"cadvisor": func(b *testing.B, c statsv1.StatsServiceClient) int {
				return drain(b, c, statsv1.MetricsDocument_METRICS_DOCUMENT_CADVISOR)
			},
			"resource": func(b *testing.B, c statsv1.StatsServiceClient) int {
				return drain(b, c, statsv1.MetricsDocument_METRICS_DOCUMENT_RESOURCE)
			},
		}
		for _, name := range []string{"summary", "cadvisor", "resource"} {
			b.Run(name+"/"+strconv.Itoa(pods), func(b *testing.B) {
				client := busy(b, pods)
				size := documents[name](b, client)
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					size = documents[name](b, client)
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(size), "document-bytes")
			})
		}
	}
}

// cpuTime is what the process has used, which a busy machine does not change
// as it does the time of the clock. The client's part is in it.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func drain(b *testing.B, c statsv1.StatsServiceClient, document statsv1.MetricsDocument) (size int) {
	stream, err := c.GetMetricsText(b.Context(), &statsv1.GetMetricsTextRequest{Document: document})
	if err != nil {
		b.Fatal(err)
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return size
		}
		if err != nil {
			b.Fatal(err)
		}
		size += len(piece.GetData())
	}
}
