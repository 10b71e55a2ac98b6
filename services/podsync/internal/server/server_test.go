package server

import (
	"context"
	"errors"
	"io"
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
	"net"
	"path/filepath"

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
			LogPath:     func(_ *v1.Pod, c string, n int32) string { return "/logs/" + c + "/" + string('0'+n) },
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

func TestDesiredPodsCarryTheStatusOfWhoeverOwnsIt(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		static := runningPod()
		static.Pod = static.Pod.DeepCopy()
		static.Pod.UID, static.Static = "v", true
		r.pods.Set(static)
		resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{})
		if err != nil || len(resp.GetPods()) != 2 {
			t.Fatalf("%d pods, error %v", len(resp.GetPods()), err)
		}
		var api, own v1.Pod
		if err := errors.Join(api.Unmarshal(resp.GetPods()[0]), own.Unmarshal(resp.GetPods()[1])); err != nil {
			t.Fatal(err)
		}
		if api.Status.Message != "as the apiserver has it" || own.Status.Phase != v1.PodRunning {
			t.Fatalf("status of the apiserver's pod %+v, of the static one %+v", api.Status, own.Status)
		}
		if seen := time.Now().UTC().Format(time.RFC3339Nano); len(api.Annotations) != 2 || api.Annotations["kubernetes.io/config.source"] != "api" || api.Annotations["kubernetes.io/config.seen"] != seen {
			t.Errorf("the apiserver's pod came from %v, want api at %s", api.Annotations, seen)
		}
		if shown, _ := r.pods.Get("u"); len(shown.Pod.Annotations) != 0 || len(own.Annotations) != 0 {
			t.Errorf("annotations of the pods themselves: %v %v", shown.Pod.Annotations, own.Annotations)
		}
	})
}

func TestDesiredPodsThatTheCallerHasAreNotSentAgain(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		list := func(known *podsyncv1.ListDesiredPodsResponse) *podsyncv1.ListDesiredPodsResponse {
			t.Helper()
			resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{KnownEpoch: known.GetEpoch(), KnownRevision: known.GetRevision()})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		none := list(nil)
		if none.GetUnchanged() || none.GetEpoch() != 7 || none.GetRevision() == 0 {
			t.Fatalf("who knows nothing gets %v", none)
		}
		if again := list(none); !again.GetUnchanged() {
			t.Fatalf("no pods and still none: %v", again)
		}
		r.addRunning()
		one := list(none)
		if one.GetUnchanged() || len(one.GetPods()) != 1 {
			t.Fatalf("a new pod: %v", one)
		}
		if again := list(one); !again.GetUnchanged() || len(again.GetPods()) != 0 {
			t.Fatalf("the same pod: %v", again)
		}
		r.pods.Set(runningPod())
		if changed := list(one); changed.GetUnchanged() || len(changed.GetPods()) != 1 {
			t.Fatalf("a changed pod: %v", changed)
		}
		one.Epoch++
		if other := list(one); other.GetUnchanged() {
			t.Fatal("the list of another epoch is taken for this one's")
		}
		now := list(nil)
		r.pods.Remove(runningPod().Pod.UID)
		if gone := list(now); gone.GetUnchanged() || len(gone.GetPods()) != 0 {
			t.Fatalf("a pod that is gone: %v", gone)
		}
	})
}

func TestThePodsAPISendsWhatIsThenThatItIsAllThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.podsAPI.WatchPods(ctx, &podsapi.WatchPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		next := func(want podsapi.EventType) v1.Pod {
			t.Helper()
			e, err := stream.Recv()
			if err != nil || e.GetType() != want {
				t.Fatalf("event %v, error %v; want %v", e, err, want)
			}
			var pod v1.Pod
			if err := pod.Unmarshal(e.GetPod()); err != nil {
				t.Fatal(err)
			}
			return pod
		}
		if pod := next(podsapi.EventType_ADDED); pod.Status.Phase != v1.PodRunning {
			t.Fatalf("status %+v is not podsync's own", pod.Status)
		}
		next(podsapi.EventType_INITIAL_SYNC_COMPLETE)
		r.pods.Set(runningPod())
		next(podsapi.EventType_MODIFIED)
		r.pods.Remove("u")
		if pod := next(podsapi.EventType_DELETED); pod.UID != "u" || pod.Name != "p" || pod.Namespace != "ns" {
			t.Fatalf("deleted %+v", pod)
		}
		_, err = r.podsAPI.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: "u"})
		wantCode(t, err, codes.NotFound, `"u"`)
	})
}

func TestContainersComeAsASnapshotAndThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		r.table.SetVolumes(podcache.Volumes{UID: "u", Volumes: []podcache.Volume{{Name: "v", HostPath: "/v", Ephemeral: true}}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.client.WatchContainers(ctx, &podsyncv1.WatchContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || !first.GetSnapshot() || first.GetEpoch() != 7 || len(first.GetSandboxes()) != 1 || len(first.GetVolumes()) != 1 {
			t.Fatalf("frame %v, error %v", first, err)
		}
		if c := first.GetContainers()[0]; c.GetId() != "c1" || c.GetLogDir() != "/logs/ns_p_u/c" || c.GetState() != podsyncv1.ContainerState_CONTAINER_STATE_RUNNING || c.GetPod().GetName() != "p" {
			t.Fatalf("container %v", c)
		}
		r.table.SetPodsCgroup("/kubepods.slice")
		if frame, err := stream.Recv(); err != nil || frame.GetSnapshot() || frame.GetPodsCgroup() != "/kubepods.slice" {
			t.Fatalf("frame %v, error %v", frame, err)
		}
		r.table.SetPod("u", nil, nil)
		r.table.SetVolumes(podcache.Volumes{UID: "u"})
		for gone := 0; gone < 3; {
			frame, err := stream.Recv()
			if err != nil || frame.GetSnapshot() {
				t.Fatalf("frame %v, error %v", frame, err)
			}
			gone += len(frame.GetRemovedIds()) + len(frame.GetRemovedVolumePodUids())
		}
	})
}

func readAll(t *testing.T, r *rig, container string, o *v1.PodLogOptions) (string, error) {
	t.Helper()
	data, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := r.client.ReadLogs(t.Context(), &podsyncv1.ReadLogsRequest{Pod: ref, Container: container, Options: data})
	if err != nil {
		return "", err
	}
	text := ""
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return text, err
		}
		text += string(resp.GetData())
	}
}

func TestLogsSayWhyThereAreNone(t *testing.T) {
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	for _, tc := range []struct {
		name        string
		container   string
		state, last v1.ContainerState
		previous    bool
		code        codes.Code
		text        string
		path        string
	}{
		{"a running one", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{}, false, codes.OK, "", "/logs/ns_p_u/c/1.log"},
		{"its former start", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, ended("containerd://c0"), true, codes.OK, "", "/logs/c/0"},
		{"no former start", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{}, true, codes.FailedPrecondition, `previous terminated container "c" in pod "p" not found`, ""},
		{"an ended one", "c", ended("containerd://c9"), v1.ContainerState{}, false, codes.OK, "", "/logs/c/1"},
		{"one that backs off", "c", waiting("CrashLoopBackOff"), ended("containerd://c9"), false, codes.OK, "", "/logs/c/1"},
		{"one that never started", "c", waiting("ContainerCreating"), v1.ContainerState{}, false, codes.FailedPrecondition, `container "c" in pod "p" is waiting to start: ContainerCreating`, ""},
		{"one without its image", "c", waiting("ErrImagePull"), v1.ContainerState{}, false, codes.FailedPrecondition, "image can't be pulled", ""},
		{"one that is not in the spec", "d", v1.ContainerState{}, v1.ContainerState{}, false, codes.NotFound, `container "d" not found in pod "p"`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(t *testing.T, r *rig) {
				r.addRunning()
				pod := runningPod()
				pod.Status.ContainerStatuses[0].State, pod.Status.ContainerStatuses[0].LastTerminationState = tc.state, tc.last
				r.pods.Set(pod)
				text, err := readAll(t, r, tc.container, &v1.PodLogOptions{Previous: tc.previous})
				wantCode(t, err, tc.code, tc.text)
				if tc.code == codes.OK && (text != "hello\n" || r.logs.req.Path != tc.path) {
					t.Fatalf("text %q from %s, want %s", text, r.logs.req.Path, tc.path)
				}
			})
		})
	}
}

func TestAFollowedLogEndsWithItsContainer(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		go func() {
			time.Sleep(time.Minute)
			r.table.SetPod("u", nil, []podstate.ContainerRow{{ID: "c1", UID: "u", Name: "c", State: podstate.StateExited}})
		}()
		began := time.Now()
		text, err := readAll(t, r, "c", &v1.PodLogOptions{Follow: true})
		if err != nil || text != "hello\n" || time.Since(began) != time.Minute {
			t.Fatalf("text %q after %v, error %v", text, time.Since(began), err)
		}
	})
}

func TestTargetsGoDownAndResultsComeUp(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		key := podstate.ProbeKey{Container: "c", Type: podstate.Readiness}
		r.board.Set(runningPod().Pod, []podstate.Target{{ProbeKey: key, ContainerID: "c1", PodIP: "10.0.0.9"}})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := r.client.SyncProbes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := stream.Recv()
		if err != nil || !frame.GetSnapshot() || len(frame.GetTargets()) != 1 {
			t.Fatalf("frame %v, error %v", frame, err)
		}
		target := frame.GetTargets()[0]
		if h := target.GetHttpGet(); h.GetScheme() != "https" || h.GetPort() != 80 || target.GetPeriodSeconds() != 10 || target.GetFailureThreshold() != 3 || target.GetPodIp() != "10.0.0.9" || target.GetLastOutcome() != 0 {
			t.Fatalf("target %v", target)
		}
		if err := stream.Send(&podsyncv1.SyncProbesRequest{Results: []*podsyncv1.ProbeResult{{
			Key: target.GetKey(), ContainerId: "c1", Outcome: podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS, Failures: 2,
		}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(r.results) != 1 || !r.results[0].Success {
			t.Fatalf("results %+v", r.results)
		}
		cancel()
		again, err := r.client.SyncProbes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if frame, err = again.Recv(); err != nil || frame.GetTargets()[0].GetLastOutcome() != podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS || frame.GetTargets()[0].GetLastFailures() != 2 {
			t.Fatalf("a probe process that starts anew is not told what stands: %v, %v", frame, err)
		}
		if err := again.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Recv(); !errors.Is(err, io.EOF) {
			t.Fatalf("the stream ends with %v", err)
		}
	})
}

func TestTheRuntimeIsDescribed(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.state = RuntimeState{
			Version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2"},
			Status: &runtimeapi.StatusResponse{
				Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "cni"}}},
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {}},
			},
		}
		resp, err := r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{})
		if err != nil || !resp.GetRuntimeReady() || resp.GetNetworkReady() || resp.GetNetworkMessage() != "reason:NetworkPluginNotReady message:cni" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		// nodestatus knows by "reason:" that this is the runtime's own word.
		r.state.Status.Status.Conditions[0] = &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Reason: "Booting", Message: "wait"}
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || resp.GetRuntimeMessage() != "reason:Booting message:wait" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		r.state.Status.Status.Conditions = nil
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || resp.GetRuntimeMessage() != "reason:NotReported message:the runtime's status has no condition RuntimeReady" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		if h := resp.GetHandlers(); len(h) != 2 || h[0].GetName() != "" || !h[1].GetUserNamespaces() {
			t.Fatalf("handlers %v", h)
		}
		r.state.Err = errors.New("connection refused")
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || !strings.Contains(resp.GetRuntimeMessage(), "connection refused") {
			t.Fatalf("response %v, error %v", resp, err)
		}
		images, err := r.client.ListImages(t.Context(), &podsyncv1.ListImagesRequest{})
		if err != nil || images.GetImages()[0].GetId() != "big" || len(images.GetImages()[1].GetRepoTags()) != mostImageNames {
			t.Fatalf("images %v, error %v", images, err)
		}
		usage, err := r.client.ListFilesystemUsage(t.Context(), &podsyncv1.ListFilesystemUsageRequest{})
		if err != nil || len(usage.GetWritableLayers()) != 1 || usage.GetWritableLayers()[0].GetUsage().GetUsedBytes() != 42 || usage.GetImageFilesystems()[0].GetMountpoint() != "/m" || usage.GetSandboxImage() != "pause:3" {
			t.Fatalf("usage %v, error %v", usage, err)
		}
		running, err := r.client.ListRuntimePods(t.Context(), &podsyncv1.ListRuntimePodsRequest{})
		if err != nil || len(running.GetPods()) != 0 {
			t.Fatalf("running %v, error %v", running, err)
		}
	})
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
