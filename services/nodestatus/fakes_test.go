package nodestatus

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

// podsync is the runtime as podsync tells it.
type podsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	mu       sync.Mutex
	runtime  *podsyncv1.GetRuntimeResponse
	silent   bool // It has just started and knows nothing.
	noAnswer bool // The runtime gives none.
	noLists  bool // It answers, but does not list its containers.
	stops    []*podsyncv1.StopPodRequest
	pressure []string
	told     *podsyncv1.ToldPressure // nil: nothing since it started
}

func (p *podsync) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return &podsyncv1.GetRuntimeResponse{ToldPressure: p.told}, nil
	}
	out := &podsyncv1.GetRuntimeResponse{
		Name: "containerd", Version: "v2.2.9", RuntimeReady: p.runtime.RuntimeReady, RuntimeMessage: p.runtime.RuntimeMessage,
		NetworkReady: p.runtime.NetworkReady, NetworkMessage: p.runtime.NetworkMessage, LastOkTime: p.runtime.LastOkTime,
		Handlers: []*podsyncv1.RuntimeHandler{{Name: "runc", UserNamespaces: true}, {Name: ""}}, SupplementalGroupsPolicy: true,
	}
	out.ToldPressure, out.KubeletDevices = p.told, p.runtime.KubeletDevices
	if !p.noAnswer {
		out.LastOkTime = timestamppb.Now()
		p.runtime.LastOkTime = out.LastOkTime
	}
	if !p.noLists {
		p.runtime.LastRelistTime = timestamppb.Now()
	}
	out.LastRelistTime = p.runtime.LastRelistTime
	return out, nil
}

func (p *podsync) ListImages(context.Context, *podsyncv1.ListImagesRequest) (*podsyncv1.ListImagesResponse, error) {
	return &podsyncv1.ListImagesResponse{Images: []*podsyncv1.Image{{Id: "i", RepoDigests: []string{"app@sha256:1"}, RepoTags: []string{"app:1"}, SizeBytes: 9}}}, nil
}

func (p *podsync) set(change func(*podsync)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// stats is the machine as stats tells it.
type stats struct {
	statsv1.UnimplementedStatsServiceServer
	mu        sync.Mutex
	bootID    string
	available uint64
	kills     []*statsv1.OOMKill
	changed   chan struct{}
}

func (s *stats) GetMachine(context.Context, *statsv1.GetMachineRequest) (*statsv1.GetMachineResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &statsv1.GetMachineResponse{
		NumCores: 4, MemoryCapacityBytes: 8 << 30, RootFsCapacityBytes: 100 << 30, MachineId: "m", SystemUuid: "u", BootId: s.bootID,
		HugePages: []*statsv1.HugePages{{PageSizeBytes: 2 << 20, Count: 512}},
	}, nil
}

func (s *stats) WatchSignals(r *statsv1.WatchSignalsRequest, stream grpc.ServerStreamingServer[statsv1.WatchSignalsResponse]) error {
	ticker := time.NewTicker(r.GetPeriod().AsDuration())
	defer ticker.Stop()
	for {
		s.mu.Lock()
		available := s.available
		s.mu.Unlock()
		if err := stream.Send(&statsv1.WatchSignalsResponse{Epoch: 1, Signals: []*statsv1.Signal{{Name: "memory.available", Available: available, Capacity: 8 << 30}}}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-ticker.C:
		case <-s.changed:
		}
	}
}

func (s *stats) setAvailable(bytes uint64) {
	s.mu.Lock()
	s.available = bytes
	s.mu.Unlock()
	s.changed <- struct{}{}
}

// host has one address.
type host struct{}

// world is a nodestatus with its peers and an apiserver, in a bubble.
type world struct {
	t          *testing.T
	api        *fakeapiserver.Server
	podsync    *podsync
	stats      *stats
	podsyncSrv *grpctest.Server
	statsSrv   *grpctest.Server
	standalone bool
	change     func(*Config)
	log        func(line string)                // may be nil
	refuses    func(fakeapiserver.Request) bool // may be nil; set before start
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, change: func(*Config) {},
		podsync: &podsync{runtime: &podsyncv1.GetRuntimeResponse{RuntimeReady: true, NetworkReady: true}},
		stats:   &stats{bootID: "b1", available: 4 << 30, changed: make(chan struct{}, 1)},
	}
	w.api = fakeapiserver.New(fakeapiserver.Config{Seed: 1, Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if w.refuses != nil && w.refuses(q) {
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}})
	w.podsyncSrv = grpctest.New(func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, w.podsync) })
	w.statsSrv = grpctest.New(func(s *grpc.Server) { statsv1.RegisterStatsServiceServer(s, w.stats) })
	return w
}

func (w *world) close() {
	w.podsyncSrv.Close()
	w.statsSrv.Close()
	w.api.Close()
}

func testConfig() Config {
	return Config{
		NodeName: "n1", NodeLabels: map[string]string{"node.kubernetes.io/instance-type": "small"}, RegisterNode: true, Port: 10250, MaxPods: 110, NodeStatusMaxImages: 50,
		RegisterWithTaints: []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}}, KubeReserved: map[string]string{"cpu": "500m", "memory": "1Gi"},
		EvictionHard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}, EvictionPressureTransitionPeriod: 5 * time.Minute,
		NodeStatusUpdateFrequency: 10 * time.Second, NodeStatusReportFrequency: 5 * time.Minute, NodeLeaseDuration: 40 * time.Second,
	}
}

// start runs a nodestatus; stop kills it.
func (w *world) start() (service *Service, stop func()) {
	w.t.Helper()
	dial := func(s *grpctest.Server) *grpc.ClientConn {
		conn, err := s.Dial(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second,
		}))
		if err != nil {
			w.t.Fatal(err)
		}
		return conn
	}
	podsyncConn, statsConn := dial(w.podsyncSrv), dial(w.statsSrv)
	cfg := testConfig()
	w.change(&cfg)
	deps := Deps{Podsync: podsyncConn, Stats: statsConn, Addresses: host{}}
	if !w.standalone {
		deps.Client, deps.Heartbeat = w.api.Client(), w.api.Client()
	}
	service, err := New(cfg, deps)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if w.log != nil {
		ctx = klog.NewContext(ctx, funcr.New(func(_, line string) { w.log(line) }, funcr.Options{}))
	}
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	return service, func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
		podsyncConn.Close()
		statsConn.Close()
	}
}

func (w *world) condition(kind v1.NodeConditionType) v1.NodeCondition {
	w.t.Helper()
	n := w.api.Node("n1")
	if n == nil {
		w.t.Fatal("the Node is not there")
	}
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}

func (w *world) wantReady(want v1.ConditionStatus, message string) {
	w.t.Helper()
	if c := w.condition(v1.NodeReady); c.Status != want || !strings.Contains(c.Message, message) {
		w.t.Errorf("Ready is %s with %q; want %s with %q", c.Status, c.Message, want, message)
	}
}

func (w *world) events() []string {
	var out []string
	for _, e := range w.api.Events() {
		out = append(out, e.Reason)
	}
	slices.Sort(out)
	return out
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		test(t, w)
	})
}
