package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// fakeRuntime is what containers do in a session.
type fakeRuntime struct {
	// ended is closed when the test ends.
	ended <-chan struct{}
}

func (f fakeRuntime) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "fail":
		fmt.Fprint(errOut, "no good")
		return utilexec.CodeExitError{Err: fmt.Errorf("exit 3"), Code: 3}
	case "chatter":
		for {
			if _, err := fmt.Fprintln(out, "chatter"); err != nil {
				return err
			}
		}
	case "silent":
		// As sleep, it takes no notice of its client after its first word.
		fmt.Fprint(out, "x")
		<-f.ended
		return nil
	case "size":
		size := <-resize
		_, err := fmt.Fprintf(out, "tty=%v %dx%d", tty, size.Width, size.Height)
		return err
	default:
		_, err := fmt.Fprint(out, strings.Join(cmd, " "))
		return err
	}
}

func (fakeRuntime) Attach(_ context.Context, id string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	_, err := fmt.Fprint(out, "attached to "+id)
	return err
}

func (fakeRuntime) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	request := make([]byte, 4)
	if _, err := io.ReadFull(stream, request); err != nil {
		return err
	}
	if port == 81 {
		_, err := io.Copy(stream, io.LimitReader(zeros{}, forwardedBytes))
		return err
	}
	_, err := fmt.Fprintf(stream, "%s:%d %s", id, port, request)
	return err
}

// forwardedBytes is what port 81 sends.
const forwardedBytes = 64 << 20

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// fakePodsync serves one pod ns/p with container c.
type fakePodsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	commonv1.UnimplementedCommonServiceServer
	streams streaming.Server

	mu   sync.Mutex
	seen []string
	// header is the metadata of the last ListDesiredPods.
	header metadata.MD
	// pods are those that are desired; none is ns/p alone.
	pods [][]byte
	// logBytes is how long the log is; 0 is two lines.
	logBytes int64
	// old is a podsync that does not know HoldExec.
	old bool
	// held is what was said of sessions, in its order.
	held []string
}

// setPods makes so many pods of a usual size.
func (f *fakePodsync) setPods(t testing.TB, n int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = nil
	for i := range n {
		pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(fmt.Sprint(i))}}
		for c := range 2 {
			name := fmt.Sprintf("c%d", c)
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: "registry.local/app:1", Env: []v1.EnvVar{{Name: "A", Value: "b"}}})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: name, Ready: true, ImageID: "sha256:0123456789"})
		}
		raw, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		f.pods = append(f.pods, raw)
	}
}

func (f *fakePodsync) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fmt.Sprintf(format, args...))
}

func known(ref *podsyncv1.PodRef, container string) error {
	if ref.GetNamespace() != "ns" || ref.GetName() != "p" || ref.GetUid() != "" && ref.GetUid() != "u" {
		return fmt.Errorf("%w: pod %q does not exist", rpcerr.ErrNotFound, ref.GetName())
	}
	if container != "c" {
		return fmt.Errorf("container not found (%q): %w", container, rpcerr.ErrPrecondition)
	}
	return nil
}

func (f *fakePodsync) ListDesiredPods(ctx context.Context, _ *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	f.mu.Lock()
	f.header, _ = metadata.FromIncomingContext(ctx)
	pods := f.pods
	f.mu.Unlock()
	if pods != nil {
		return &podsyncv1.ListDesiredPodsResponse{Pods: pods}, nil
	}
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	raw, err := pod.Marshal()
	return &podsyncv1.ListDesiredPodsResponse{Pods: [][]byte{raw}}, err
}

func (f *fakePodsync) ListRuntimePods(context.Context, *podsyncv1.ListRuntimePodsRequest) (*podsyncv1.ListRuntimePodsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &podsyncv1.ListRuntimePodsResponse{Pods: f.pods}, nil
}

func (f *fakePodsync) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	return &podsyncv1.GetRuntimeResponse{}, nil
}

func (f *fakePodsync) ReadLogs(req *podsyncv1.ReadLogsRequest, stream podsyncv1.PodSyncService_ReadLogsServer) error {
	if err := known(req.GetPod(), req.GetContainer()); err != nil {
		return err
	}
	var options v1.PodLogOptions
	if err := options.Unmarshal(req.GetOptions()); err != nil {
		return err
	}
	if f.logBytes > 0 {
		piece := make([]byte, 31<<10) // podsync's
		for left := f.logBytes; left > 0; left -= int64(len(piece)) {
			if err := stream.Send(&podsyncv1.ReadLogsResponse{Data: piece[:min(left, int64(len(piece)))]}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := stream.Send(&podsyncv1.ReadLogsResponse{Data: []byte("first\n")}); err != nil {
		return err
	}
	if options.Follow {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return stream.Send(&podsyncv1.ReadLogsResponse{Data: []byte("last\n")})
}

func (f *fakePodsync) ExecSync(_ context.Context, req *podsyncv1.ExecSyncRequest) (*podsyncv1.ExecSyncResponse, error) {
	if err := known(req.GetPod(), req.GetContainer()); err != nil {
		return nil, err
	}
	if req.GetCommand()[0] == "fail" {
		return &podsyncv1.ExecSyncResponse{ExitCode: 2, Stderr: []byte("bad")}, nil
	}
	return &podsyncv1.ExecSyncResponse{Stdout: []byte(strings.Join(req.GetCommand(), "|")), Stderr: []byte("!")}, nil
}

func (f *fakePodsync) CheckpointContainer(_ context.Context, req *podsyncv1.CheckpointContainerRequest) (*podsyncv1.CheckpointContainerResponse, error) {
	if req.GetContainer() == "nosuch" {
		return nil, fmt.Errorf("%w: container %q not found", rpcerr.ErrNotFound, "nosuch")
	}
	if err := known(req.GetPod(), req.GetContainer()); err != nil {
		return nil, err
	}
	return &podsyncv1.CheckpointContainerResponse{Path: fmt.Sprintf("/checkpoints/%s-%d.tar", req.GetContainer(), req.GetTimeout().GetSeconds())}, nil
}

func (f *fakePodsync) OpenExec(_ context.Context, req *podsyncv1.OpenExecRequest) (*podsyncv1.OpenExecResponse, error) {
	if err := known(req.GetPod(), req.GetContainer()); err != nil {
		return nil, err
	}
	if req.GetCommand()[0] == "busy" {
		return nil, fmt.Errorf("maximum number of in-flight requests exceeded: %w", rpcerr.ErrExhausted)
	}
	s := req.GetStreams()
	f.note("exec %v in=%v out=%v err=%v tty=%v", req.GetCommand(), s.GetStdin(), s.GetStdout(), s.GetStderr(), s.GetTty())
	res, err := f.streams.GetExec(&runtimeapi.ExecRequest{
		ContainerId: "id", Cmd: req.GetCommand(), Stdin: s.GetStdin(), Stdout: s.GetStdout(), Stderr: s.GetStderr(), Tty: s.GetTty(),
	})
	return &podsyncv1.OpenExecResponse{Url: res.GetUrl()}, err
}

// HoldExec notes what it is told. It has nothing to end.
func (f *fakePodsync) HoldExec(stream podsyncv1.PodSyncService_HoldExecServer) error {
	f.mu.Lock()
	old := f.old
	f.mu.Unlock()
	if old {
		return f.UnimplementedPodSyncServiceServer.HoldExec(stream)
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	res := &podsyncv1.HoldExecResponse{ContainerId: "id", BeganTicks: 4711}
	if open := first.GetOpen(); open != nil {
		opened, err := f.OpenExec(stream.Context(), open)
		if err != nil {
			return err
		}
		res.Url = opened.GetUrl()
		f.hold("open %v", open.GetCommand())
	} else {
		r := first.GetResume()
		f.hold("resume %s %v %d", r.GetContainerId(), r.GetCommand(), r.GetBeganTicks())
	}
	if err := stream.Send(res); err != nil {
		return err
	}
	last, err := stream.Recv()
	switch {
	case err != nil:
		f.hold("broken")
		return err
	case last.GetOver() == nil:
		f.hold("nonsense %v", last)
	case last.GetOver().GetClientLeft():
		f.hold("left")
		return stream.Send(&podsyncv1.HoldExecResponse{})
	default:
		f.hold("ended")
	}
	return nil
}

func (f *fakePodsync) hold(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, fmt.Sprintf(format, args...))
}

// told returns what was said of sessions since forget.
func (f *fakePodsync) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.held)
}

func (f *fakePodsync) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = nil
}

func (f *fakePodsync) OpenAttach(_ context.Context, req *podsyncv1.OpenAttachRequest) (*podsyncv1.OpenAttachResponse, error) {
	if err := known(req.GetPod(), req.GetContainer()); err != nil {
		return nil, err
	}
	res, err := f.streams.GetAttach(&runtimeapi.AttachRequest{ContainerId: "id", Stdout: true})
	return &podsyncv1.OpenAttachResponse{Url: res.GetUrl()}, err
}

func (f *fakePodsync) OpenPortForward(_ context.Context, req *podsyncv1.OpenPortForwardRequest) (*podsyncv1.OpenPortForwardResponse, error) {
	if err := known(req.GetPod(), "c"); err != nil {
		return nil, err
	}
	res, err := f.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "sandbox", Port: req.GetPorts()})
	return &podsyncv1.OpenPortForwardResponse{Url: res.GetUrl()}, err
}

// fakeProcess answers CommonService with one family.
type fakeProcess struct {
	commonv1.UnimplementedCommonServiceServer
	registry *prometheus.Registry

	mu        sync.Mutex
	verbosity int32
	// sick is what a check that fails says, by name.
	sick map[string]string
}

func (f *fakeProcess) GetInfo(context.Context, *commonv1.GetInfoRequest) (*commonv1.GetInfoResponse, error) {
	return &commonv1.GetInfoResponse{}, nil
}

func (f *fakeProcess) CheckHealth(_ context.Context, req *commonv1.CheckHealthRequest) (*commonv1.CheckHealthResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &commonv1.CheckHealthResponse{}
	for _, name := range req.GetNames() {
		message, sick := f.sick[name]
		res.Checks = append(res.Checks, &commonv1.HealthCheck{Name: name, Healthy: !sick, Message: message})
	}
	return res, nil
}

func (f *fakeProcess) SetLogLevel(_ context.Context, req *commonv1.SetLogLevelRequest) (*commonv1.SetLogLevelResponse, error) {
	if req.GetVerbosity() > 10 {
		return nil, fmt.Errorf("log verbosity %d: %w: use 0 or more", req.GetVerbosity(), rpcerr.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verbosity = req.GetVerbosity()
	return &commonv1.SetLogLevelResponse{}, nil
}

func (f *fakeProcess) GetProfile(req *commonv1.GetProfileRequest, stream commonv1.CommonService_GetProfileServer) error {
	if req.GetName() == "nosuch" {
		return fmt.Errorf("%w: profile", rpcerr.ErrNotFound)
	}
	families, err := f.registry.Gather()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s of %s seconds=%d debug=%d", req.GetName(), families[0].GetName(), req.GetSeconds(), req.GetDebug())
	return stream.Send(&commonv1.GetProfileResponse{ContentType: "text/plain; charset=utf-8", Data: []byte(text)})
}

// fakeNodestatus has one file and one service, and asks the house's apiserver.
type fakeNodestatus struct {
	nodestatusv1.UnimplementedNodeStatusServiceServer
	h *house
}

func (f fakeNodestatus) ReviewToken(ctx context.Context, req *nodestatusv1.ReviewTokenRequest) (*nodestatusv1.ReviewTokenResponse, error) {
	var review authnv1.TokenReview
	if err := review.Unmarshal(req.GetTokenReview()); err != nil {
		return nil, err
	}
	if f.h.hang != nil && strings.HasPrefix(review.Spec.Token, "random-") {
		select {
		case <-f.h.hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	answer, err := f.h.apiserver.Client().AuthenticationV1().TokenReviews().Create(ctx, &review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	raw, err := answer.Marshal()
	return &nodestatusv1.ReviewTokenResponse{TokenReview: raw}, err
}

func (f fakeNodestatus) ReviewAccess(ctx context.Context, req *nodestatusv1.ReviewAccessRequest) (*nodestatusv1.ReviewAccessResponse, error) {
	var review authzv1.SubjectAccessReview
	if err := review.Unmarshal(req.GetSubjectAccessReview()); err != nil {
		return nil, err
	}
	answer, err := f.h.apiserver.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	raw, err := answer.Marshal()
	return &nodestatusv1.ReviewAccessResponse{SubjectAccessReview: raw}, err
}

const nodeLog = "0123456789"

func (fakeNodestatus) StatNodeLog(_ context.Context, req *nodestatusv1.StatNodeLogRequest) (*nodestatusv1.StatNodeLogResponse, error) {
	file := &nodestatusv1.NodeLogFile{Name: "a.log", SizeBytes: int64(len(nodeLog)), ModifiedTime: timestamppb.New(time.Unix(1e9, 0))}
	switch req.GetPath() {
	case "":
		return &nodestatusv1.StatNodeLogResponse{
			File:    &nodestatusv1.NodeLogFile{Name: "log", Directory: true},
			Entries: []*nodestatusv1.NodeLogFile{file, {Name: "dir", Directory: true}},
		}, nil
	case "dir", "dir/":
		return &nodestatusv1.StatNodeLogResponse{File: &nodestatusv1.NodeLogFile{Name: "dir", Directory: true}}, nil
	case waitsLog:
		return &nodestatusv1.StatNodeLogResponse{File: &nodestatusv1.NodeLogFile{Name: waitsLog, SizeBytes: 1 << 20}}, nil
	case "a.log":
		return &nodestatusv1.StatNodeLogResponse{File: file}, nil
	}
	return nil, fmt.Errorf("%w: %s", rpcerr.ErrNotFound, req.GetPath())
}

// waitsLog is a log of which a part is sent, and no more.
const waitsLog = "waits"

func (fakeNodestatus) ReadNodeLog(req *nodestatusv1.ReadNodeLogRequest, stream nodestatusv1.NodeStatusService_ReadNodeLogServer) error {
	if req.GetPath() == waitsLog {
		err := stream.Send(&nodestatusv1.ReadNodeLogResponse{Data: make([]byte, 32<<10)})
		<-stream.Context().Done()
		return err
	}
	for _, b := range []byte(nodeLog[req.GetOffsetBytes():]) {
		if err := stream.Send(&nodestatusv1.ReadNodeLogResponse{Data: []byte{b}}); err != nil {
			return err
		}
	}
	return nil
}

func (fakeNodestatus) QueryNodeLogs(req *nodestatusv1.QueryNodeLogsRequest, stream nodestatusv1.NodeStatusService_QueryNodeLogsServer) error {
	return stream.Send(&nodestatusv1.QueryNodeLogsResponse{Data: fmt.Appendf(nil, "log of %v, last %d", req.GetServices(), req.GetTailLines())})
}

func newFakeProcess(metric string) *fakeProcess {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: metric, Help: "h"}))
	return &fakeProcess{registry: r}
}

func (f *fakeProcess) GetMetrics(_ *commonv1.GetMetricsRequest, stream commonv1.CommonService_GetMetricsServer) error {
	families, err := f.registry.Gather()
	if err != nil {
		return err
	}
	return stream.Send(&commonv1.GetMetricsResponse{Families: families})
}

func (f *fakeProcess) GetConfig(context.Context, *commonv1.GetConfigRequest) (*commonv1.GetConfigResponse, error) {
	return &commonv1.GetConfigResponse{KubeletConfigurationJson: []byte(`{"kind":"KubeletConfiguration"}`)}, nil
}

type fakeStats struct {
	statsv1.UnimplementedStatsServiceServer
	// pods makes the documents as long as with so many pods; 0 is shortest.
	pods atomic.Int64
	// open are the calls for metrics under way, most how many there were at once.
	open, most atomic.Int64
}

// Bytes that a pod of two containers adds to a document of the kubelet's.
const (
	summaryBytesPerPod = 4 << 10
	metricsBytesPerPod = 16 << 10
)

func (f *fakeStats) GetSummary(context.Context, *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	if n := f.pods.Load(); n > 0 {
		return &statsv1.GetSummaryResponse{SummaryJson: fmt.Appendf(nil, `{"pods":%q}`, strings.Repeat("x", int(n)*summaryBytesPerPod))}, nil
	}
	return &statsv1.GetSummaryResponse{SummaryJson: []byte(`{"node":{}}`)}, nil
}

func (*fakeStats) GetMachine(context.Context, *statsv1.GetMachineRequest) (*statsv1.GetMachineResponse, error) {
	return &statsv1.GetMachineResponse{MachineInfoJson: []byte(`{"num_cores":2}`)}, nil
}

func (f *fakeStats) GetMetricsText(req *statsv1.GetMetricsTextRequest, stream statsv1.StatsService_GetMetricsTextServer) error {
	f.most.Store(max(f.most.Load(), f.open.Add(1)))
	defer f.open.Add(-1)
	for left := f.pods.Load() * metricsBytesPerPod; left > 0; left -= 64 << 10 {
		data := bytes.Repeat([]byte("x"), int(min(left, 64<<10)))
		if err := stream.Send(&statsv1.GetMetricsTextResponse{ContentType: "text/plain; version=0.0.4", Data: data}); err != nil {
			return err
		}
	}
	return stream.Send(&statsv1.GetMetricsTextResponse{ContentType: "text/plain; version=0.0.4", Data: []byte(req.GetDocument().String() + " 1\n")})
}
