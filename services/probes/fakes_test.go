package probes

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
)

const (
	success = podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS
	unknown = podsyncv1.ProbeOutcome_PROBE_OUTCOME_UNSPECIFIED
)

// fakePodsync is podsync as probes sees it, one epoch of it.
type fakePodsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	epoch uint64
	exec  func(n int, req *podsyncv1.ExecProbeRequest) (int32, error)

	mu       sync.Mutex
	snapshot []*podsyncv1.ProbeTarget
	send     chan *podsyncv1.SyncProbesResponse
	firsts   []*podsyncv1.SyncProbesRequest
	results  []*podsyncv1.ProbeResult
	events   []*podsyncv1.ProbeEvent
	execs    []time.Time
}

func (f *fakePodsync) SyncProbes(stream podsyncv1.PodSyncService_SyncProbesServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.firsts = append(f.firsts, first)
	frame := &podsyncv1.SyncProbesResponse{Epoch: f.epoch, Revision: 1, Snapshot: true, Targets: f.snapshot}
	f.mu.Unlock()
	if err := stream.Send(frame); err != nil {
		return err
	}
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.results = append(f.results, req.GetResults()...)
			f.events = append(f.events, req.GetEvents()...)
			f.mu.Unlock()
		}
	}()
	for {
		select {
		case frame := <-f.send:
			if frame == nil {
				return fmt.Errorf("%w: cut", rpcerr.ErrUnavailable)
			}
			frame.Epoch = f.epoch
			if err := stream.Send(frame); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// ExecSync is what a podsync of the release before has instead.
func (f *fakePodsync) ExecSync(_ context.Context, req *podsyncv1.ExecSyncRequest) (*podsyncv1.ExecSyncResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.execs = append(f.execs, time.Now())
	return &podsyncv1.ExecSyncResponse{ExitCode: 1, Stdout: []byte("by " + req.GetCommand()[0])}, nil
}

func (f *fakePodsync) ExecProbe(ctx context.Context, req *podsyncv1.ExecProbeRequest) (*podsyncv1.ExecProbeResponse, error) {
	if f.exec == nil {
		return f.UnimplementedPodSyncServiceServer.ExecProbe(ctx, req)
	}
	f.mu.Lock()
	f.execs = append(f.execs, time.Now())
	n := len(f.execs)
	f.mu.Unlock()
	code, err := f.exec(n, req)
	if err != nil {
		return nil, rpcerr.ToStatus(err).Err()
	}
	return &podsyncv1.ExecProbeResponse{ExitCode: code, Output: []byte("out")}, nil
}

// seen returns what came up, in short: "type:outcome" per result, with how many
// successes (+1) or failures (-1) speak against it.
func (f *fakePodsync) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.results {
		out = append(out, strings.ToLower(strings.TrimPrefix(r.GetKey().GetType().String(), "PROBE_TYPE_"))+
			":"+strings.ToLower(strings.TrimPrefix(r.GetOutcome().String(), "PROBE_OUTCOME_"))+counts(r)+"@"+r.GetContainerId())
	}
	return strings.Join(out, " ")
}

func counts(r *podsyncv1.ProbeResult) string {
	if n := r.GetSuccesses() - r.GetFailures(); n != 0 {
		return fmt.Sprintf("%+d", n)
	}
	return ""
}

// restarted is the target as podsync sends it to a process that has just been
// started: with what it was told last.
func (f *fakePodsync) restarted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.results {
		for _, t := range f.snapshot {
			if t.GetKey().GetType() == r.GetKey().GetType() {
				t.LastOutcome, t.LastSuccesses, t.LastFailures = r.GetOutcome(), r.GetSuccesses(), r.GetFailures()
			}
		}
	}
}

func (f *fakePodsync) eventTexts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, e := range f.events {
		out = append(out, e.GetReason()+": "+e.GetMessage())
	}
	return out
}

func (f *fakePodsync) execCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.execs)
}

// node is a probes process whose podsync can be exchanged.
type node struct {
	t       *testing.T
	mu      sync.Mutex
	server  *grpc.Server
	lis     *bufconn.Listener
	conn    *grpc.ClientConn
	service *Service
	metrics *prometheus.Registry
	stop    func()
}

func newNode(t *testing.T, f *fakePodsync) *node {
	n := &node{t: t, metrics: prometheus.NewRegistry()}
	n.start(f)
	conn, err := grpc.NewClient("passthrough:///podsync", append(rpc.ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			n.mu.Lock()
			lis := n.lis
			n.mu.Unlock()
			return lis.DialContext(ctx)
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	n.conn = conn
	n.startProbes()
	return n
}

func (n *node) start(f *fakePodsync) {
	f.send = make(chan *podsyncv1.SyncProbesResponse)
	server, lis := rpc.NewServer(rpc.ServerConfig{Insecure: true}), bufconn.Listen(1<<20)
	podsyncv1.RegisterPodSyncServiceServer(server, f)
	n.mu.Lock()
	n.server, n.lis = server, lis
	n.mu.Unlock()
	go func() { _ = server.Serve(lis) }()
}

func (n *node) startProbes() {
	n.metrics = prometheus.NewRegistry()
	service, err := New(Config{}, Deps{
		Metrics: prometheus.NewRegistry(), ProbeMetrics: n.metrics, Epoch: 7, Podsync: n.conn,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	n.service = service
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("Run returned %v after a clean stop", err)
		}
	}
}

func (n *node) close() {
	n.stop()
	n.conn.Close()
	n.server.Stop()
}

func execTarget(typ podsyncv1.ProbeType, id string, edit func(*podsyncv1.ProbeTarget)) *podsyncv1.ProbeTarget {
	t := &podsyncv1.ProbeTarget{
		Key: &podsyncv1.ProbeKey{PodUid: "u", Container: "c", Type: typ},
		Pod: &podsyncv1.PodRef{Namespace: "ns", Name: "p", Uid: "u"}, ContainerId: id,
		ContainerStartTime: timestamppb.Now(), Started: true, PodIp: "10.0.0.1",
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		Handler: &podsyncv1.ProbeTarget_Exec{Exec: &podsyncv1.ExecHandler{Command: []string{"check"}}},
	}
	if edit != nil {
		edit(t)
	}
	return t
}

const (
	liveness  = podsyncv1.ProbeType_PROBE_TYPE_LIVENESS
	readiness = podsyncv1.ProbeType_PROBE_TYPE_READINESS
	startup   = podsyncv1.ProbeType_PROBE_TYPE_STARTUP
)

func codes(list string) func(int, *podsyncv1.ExecProbeRequest) (int32, error) {
	return func(n int, _ *podsyncv1.ExecProbeRequest) (int32, error) {
		if list[min(n, len(list))-1] == '+' {
			return 0, nil
		}
		return 1, nil
	}
}

func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}
