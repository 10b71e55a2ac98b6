package server

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/runtime/logs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Server behind gRPC over memory, with its parts.
type rig struct {
	pods    *podcache.Pods
	table   *podcache.Table
	board   *probestore.Board
	runtime *fakeRuntime
	logs    *fakeLogs
	results []podstate.ProbeResult
	state   RuntimeState
	client  podsyncv1.PodSyncServiceClient
	server  *Server
	podsAPI podsapi.PodsClient
	dir     string
	// diskUsed is how many percent of every disk are used.
	diskUsed float64
	// act is what the node's own acts come to.
	act acts
}

type fakeRuntime struct {
	exec    *runtimeapi.ExecRequest
	attach  *runtimeapi.AttachRequest
	forward *runtimeapi.PortForwardRequest
	sync    *runtimeapi.ExecSyncRequest
	output  []byte // of commands; "out" when nil
	// takes is how long commands take; the runtime ends them after their timeout,
	// unless it hangs. What they have started holds their output for so long.
	takes time.Duration
	holds time.Duration
	hangs bool
	// restarts: what ends such a command's wait is that the runtime goes.
	restarts bool

	checkpoint    *runtimeapi.CheckpointContainerRequest
	checkpointErr error
	// checkpointing is closed to let calls that wait return; nil: none waits.
	checkpointing chan struct{}
	locations     []string
	mu            sync.Mutex
}

func (f *fakeRuntime) CheckpointContainer(_ context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	f.mu.Lock()
	f.checkpoint = req
	f.locations = append(f.locations, req.GetLocation())
	f.mu.Unlock()
	if f.checkpointing != nil {
		<-f.checkpointing
	}
	return &runtimeapi.CheckpointContainerResponse{}, f.checkpointErr
}

func (f *fakeRuntime) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	f.sync = req
	ends := time.After(max(min(f.takes, time.Duration(req.GetTimeout())*time.Second), f.holds))
	if f.hangs {
		ends = nil
	}
	select {
	case <-ends:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if f.restarts {
		return nil, status.Error(codes.Unavailable, "it goes")
	}
	if f.takes > time.Duration(req.GetTimeout())*time.Second {
		return nil, status.Error(codes.DeadlineExceeded, "timeout exceeded")
	}
	if f.output != nil {
		return &runtimeapi.ExecSyncResponse{Stdout: f.output, Stderr: f.output}, nil
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 3}, nil
}

func (f *fakeRuntime) ContainerStatus(ctx context.Context, _ *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	if f.hangs {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil
}

func (f *fakeRuntime) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	f.exec = req
	return &runtimeapi.ExecResponse{Url: "http://127.0.0.1:1/exec"}, nil
}

func (f *fakeRuntime) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	f.attach = req
	return &runtimeapi.AttachResponse{Url: "http://127.0.0.1:1/attach"}, nil
}

func (f *fakeRuntime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	f.forward = req
	return &runtimeapi.PortForwardResponse{Url: "http://127.0.0.1:1/forward"}, nil
}

func (f *fakeRuntime) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{{
		Attributes:    &runtimeapi.ContainerAttributes{Id: "c1"},
		WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 42}, Timestamp: 1},
	}, {Attributes: &runtimeapi.ContainerAttributes{Id: "without"}}}}, nil
}

func (f *fakeRuntime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: "small", Size: 1, RepoTags: slices.Repeat([]string{"of-many:1"}, 5000)}, {Id: "big", Size: 2, Pinned: true, RepoTags: []string{"pause:3"}}}}, nil
}

func (f *fakeRuntime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/m"}}}}, nil
}

type fakeLogs struct {
	req logs.Request
	err error
}

func (f *fakeLogs) Read(ctx context.Context, req logs.Request, w io.Writer) error {
	f.req = req
	if f.err != nil {
		return f.err
	}
	if req.Ended != nil {
		<-req.Ended
	}
	_, err := io.WriteString(w, "hello\n")
	return err
}

// ProbeResult implements probestore.Results.
func (r *rig) ProbeResult(_ types.UID, _ podstate.ProbeKey, result podstate.ProbeResult) {
	r.results = append(r.results, result)
}

func run(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{dir: t.TempDir(), pods: podcache.NewPods(7), table: podcache.NewTable(7), runtime: &fakeRuntime{}, logs: &fakeLogs{}}
		r.state.SourcesReady = time.Now()
		r.board = probestore.NewBoard(probestore.Deps{Epoch: 7, Results: r})
		s, err := New(Deps{
			Pods: r.pods, Table: r.table, Probes: r.board, Runtime: r.runtime, Logs: r.logs,
			State: func() RuntimeState { return r.state }, CheckpointDir: filepath.Join(r.dir, "checkpoints"),
			FreePercent: func(string) (float64, error) { return 100 - r.diskUsed, nil },
			Stops:       &r.act, Pressure: r.act.setPressure, Reclaim: &r.act,
			LogPath: func(_ *v1.Pod, c string, n int32) string { return "/logs/" + c + "/" + string('0'+n) },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.server = s
		server := rpc.NewServer(rpc.ServerConfig{Insecure: true})
		s.Register(server)
		listener := bufconn.Listen(1 << 20)
		go func() { _ = server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		r.client, r.podsAPI = podsyncv1.NewPodSyncServiceClient(conn), podsapi.NewPodsClient(conn)
		test(t, r)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
	})
}

func runningPod() podcache.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", TTY: true, ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), Scheme: v1.URISchemeHTTPS}}}}}},
		Status:     v1.PodStatus{Message: "as the apiserver has it"},
	}
	return podcache.Pod{Pod: pod, Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", ContainerID: "containerd://c1", RestartCount: 1, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}}
}

func (r *rig) addRunning() {
	r.pods.Set(runningPod())
	r.table.SetPod("u", []podstate.SandboxRow{{ID: "s1", UID: "u", Namespace: "ns", Name: "p", Ready: true}},
		[]podstate.ContainerRow{{ID: "c1", SandboxID: "s1", UID: "u", Namespace: "ns", PodName: "p", Name: "c", Image: "img", State: podstate.StateRunning, LogPath: "/logs/ns_p_u/c/1.log"}})
}

var ref = &podsyncv1.PodRef{Namespace: "ns", Name: "p"}

func wantCode(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Fatalf("error %v, want %s …%s…", err, code, text)
	}
}

// After a restart while the apiserver is away no pod of it is known, and all run.
func TestAPodIsNotSaidToBeMissingBeforeAllSourcesWereHeard(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		ask := func() error {
			_, err := r.client.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "ns", Name: "p"}})
			return err
		}
		r.state.SourcesReady = time.Time{}
		if err := ask(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not known yet") || !strings.Contains(err.Error(), "polylet status") {
			t.Errorf("before: %v", err)
		}
		r.state.SourcesReady = time.Now()
		if err := ask(); status.Code(err) != codes.NotFound {
			t.Errorf("after: %v", err)
		}
	})
}
