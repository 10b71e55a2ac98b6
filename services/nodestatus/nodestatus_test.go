package nodestatus

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
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
}

func (p *podsync) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return &podsyncv1.GetRuntimeResponse{}, nil
	}
	out := &podsyncv1.GetRuntimeResponse{
		Name: "containerd", Version: "v2.2.9", RuntimeReady: p.runtime.RuntimeReady, RuntimeMessage: p.runtime.RuntimeMessage,
		NetworkReady: p.runtime.NetworkReady, NetworkMessage: p.runtime.NetworkMessage, LastOkTime: p.runtime.LastOkTime,
		Handlers: []*podsyncv1.RuntimeHandler{{Name: "runc", UserNamespaces: true}, {Name: ""}}, SupplementalGroupsPolicy: true,
	}
	if !p.noAnswer {
		out.LastOkTime = timestamppb.Now()
		p.runtime.LastOkTime = out.LastOkTime
	}
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

func (host) Addresses() ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
}
func (host) DefaultRoute(bool) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
}
func (host) Lookup(context.Context, string) ([]netip.Addr, error) {
	return nil, errors.New("no DNS here")
}

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
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, api: fakeapiserver.New(fakeapiserver.Config{Seed: 1}), change: func(*Config) {},
		podsync: &podsync{runtime: &podsyncv1.GetRuntimeResponse{RuntimeReady: true, NetworkReady: true}},
		stats:   &stats{bootID: "b1", available: 4 << 30, changed: make(chan struct{}, 1)},
	}
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

func TestANodeIsRegisteredReadyWithAllThatIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		_, stop := w.start()
		defer stop()
		time.Sleep(500 * time.Millisecond)
		n := w.api.Node("n1")
		if n == nil {
			t.Fatalf("no Node after %s", time.Since(start))
		}
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		if n.Labels[v1.LabelHostname] != "n1" || n.Labels["node.kubernetes.io/instance-type"] != "small" || len(n.Spec.Taints) == 0 || n.Spec.Taints[0].Key != "dedicated" {
			t.Errorf("labels %v, taints %v", n.Labels, n.Spec.Taints)
		}
		for name, want := range map[v1.ResourceName]string{
			"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110", "hugepages-2Mi": "1Gi",
		} {
			if got := n.Status.Capacity[name]; got.String() != want {
				t.Errorf("capacity of %s is %s; want %s", name, got.String(), want)
			}
		}
		for name, want := range map[v1.ResourceName]string{"cpu": "3500m", "memory": "6044Mi", "ephemeral-storage": "90Gi"} {
			if got := n.Status.Allocatable[name]; got.String() != want {
				t.Errorf("allocatable %s is %s; want %s", name, got.String(), want)
			}
		}
		info := n.Status.NodeInfo
		if info.ContainerRuntimeVersion != "containerd://v2.2.9" || !strings.HasPrefix(info.KubeletVersion, "v1.36.") || info.BootID != "b1" || info.KernelVersion == "" {
			t.Errorf("info %+v", info)
		}
		if len(n.Status.Addresses) != 2 || n.Status.Addresses[0].Address != "10.0.0.7" || len(n.Status.Images) != 1 || len(n.Status.RuntimeHandlers) != 2 {
			t.Errorf("addresses %v, images %v, handlers %v", n.Status.Addresses, n.Status.Images, n.Status.RuntimeHandlers)
		}
		if n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || !*n.Status.Features.SupplementalGroupsPolicy {
			t.Errorf("endpoints %v, features %v", n.Status.DaemonEndpoints, n.Status.Features)
		}
		lease, err := w.api.Admin().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || *lease.Spec.HolderIdentity != "n1" || *lease.Spec.LeaseDurationSeconds != 40 {
			t.Errorf("lease %+v, %v", lease, err)
		}
		time.Sleep(11 * time.Second)
		renewed, err := w.api.Admin().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || !renewed.Spec.RenewTime.After(lease.Spec.RenewTime.Time) || len(renewed.OwnerReferences) != 1 || renewed.OwnerReferences[0].UID != n.UID {
			t.Errorf("lease after 11 s %+v, %v; want it renewed and owned by the Node", renewed, err)
		}
		if got := w.events(); !slices.Contains(got, "Starting") || !slices.Contains(got, "NodeHasSufficientMemory") {
			t.Errorf("events %v", got)
		}
	})
}

func TestANodeIsReadyAsSoonAsTheRuntimeIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.podsync.runtime = &podsyncv1.GetRuntimeResponse{RuntimeReady: true, NetworkMessage: "reason:NetworkPluginNotReady message:cni plugin not initialized"}
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.wantReady(v1.ConditionFalse, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized")
		w.podsync.set(func(p *podsync) { p.runtime.NetworkReady, p.runtime.NetworkMessage = true, "" })
		time.Sleep(300 * time.Millisecond)
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		time.Sleep(time.Second)
		if !slices.Contains(w.events(), "NodeReady") {
			t.Errorf("events %v; want NodeReady", w.events())
		}
	})
}

func TestAQuietNodeIsReportedOnceInAWhileAndTheLeaseRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		before := w.api.Calls()
		time.Sleep(time.Hour)
		after := w.api.Calls()
		patches, renewals := after["patch nodes/status"]-before["patch nodes/status"], after["update leases"]-before["update leases"]
		if patches < 8 || patches > 13 {
			t.Errorf("%d reports in an hour; want about 12", patches)
		}
		if renewals < 340 || renewals > 361 {
			t.Errorf("%d renewals in an hour; want about 350", renewals)
		}
		if gets := after["get nodes"] - before["get nodes"]; gets > 0 {
			t.Errorf("%d reads of the Node in a quiet hour; want none", gets)
		}
	})
}

// flips counts changes of the Ready condition's status after the first.
func (w *world) flips() int {
	n, last := 0, v1.ConditionStatus("")
	for _, write := range w.api.Writes() {
		node, ok := write.New.(*v1.Node)
		if !ok {
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status != last {
				last = c.Status
				n++
			}
		}
	}
	return n - 1
}

func TestNoPeersRestartAndNoRestartOfOursIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		time.Sleep(time.Minute)
		for range 5 {
			w.podsyncSrv.Down()
			w.statsSrv.Down()
			time.Sleep(20 * time.Second)
			stop()
			w.podsync.set(func(p *podsync) { p.silent = true })
			_, stop = w.start()
			time.Sleep(10 * time.Second)
			w.podsyncSrv.Up()
			w.statsSrv.Up()
			time.Sleep(5 * time.Second)
			w.podsync.set(func(p *podsync) { p.silent = false })
			time.Sleep(30 * time.Second)
		}
		defer func() { stop() }()
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		if n := w.flips(); n != 0 {
			t.Errorf("Ready turned %d times", n)
		}
	})
}

func TestAPeerThatStaysAwayIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.podsyncSrv.Down()
		// It may have answered last ten seconds before.
		time.Sleep(25 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		time.Sleep(30 * time.Second)
		w.wantReady(v1.ConditionFalse, "podsync, the process that holds the container runtime, has not answered")
		w.podsyncSrv.Up()
		time.Sleep(2 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestARuntimeThatIsSilentForHalfAMinuteIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute + time.Second) // between two questions, which come every ten seconds
		w.podsync.set(func(p *podsync) {
			p.noAnswer, p.runtime.RuntimeReady, p.runtime.RuntimeMessage = true, false, "connection refused"
		})
		time.Sleep(20 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		time.Sleep(20 * time.Second)
		w.wantReady(v1.ConditionFalse, "container runtime is down")
		w.podsync.set(func(p *podsync) { p.noAnswer, p.runtime.RuntimeReady, p.runtime.RuntimeMessage = false, true, "" })
		time.Sleep(time.Second)
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestPressureShowsAtOnceAndGoesAfterTheTransitionPeriodAlsoOverARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		time.Sleep(time.Minute)
		w.stats.setAvailable(50 << 20)
		time.Sleep(100 * time.Millisecond)
		if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue || c.Reason != "KubeletHasInsufficientMemory" {
			t.Errorf("condition %+v; want pressure", c)
		}
		stop()
		w.stats.mu.Lock()
		w.stats.available = 4 << 30
		w.stats.mu.Unlock()
		_, stop = w.start()
		defer stop()
		time.Sleep(4 * time.Minute)
		if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Errorf("pressure is %s four minutes after it was seen; want it kept for five", c.Status)
		}
		time.Sleep(90 * time.Second)
		if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionFalse || c.Message != "kubelet has sufficient memory available" {
			t.Errorf("condition %+v; want no pressure", c)
		}
	})
}

func TestAnApiserverThatIsAwayIsTriedUntilItIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.api.Partition(fakeapiserver.Refuse)
		service, stop := w.start()
		defer stop()
		time.Sleep(30 * time.Second)
		view := service.keeper.View()
		if view.Registered || view.LastError == "" || view.Node == nil {
			t.Errorf("view %+v; want a Node that is not registered, and why", view)
		}
		w.api.Heal()
		time.Sleep(8 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		w.api.Partition(fakeapiserver.Refuse)
		time.Sleep(10 * time.Minute)
		w.api.Heal()
		time.Sleep(12 * time.Second)
		if lease := service.lease.Status(); lease.LastError != "" || time.Since(lease.RenewTime) > 12*time.Second {
			t.Errorf("lease %+v; want it renewed after the apiserver came back", lease)
		}
	})
}

func TestWhatSomebodyElseWroteIsMendedOrKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		nodes := w.api.Admin().CoreV1().Nodes()
		n, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = v1.ConditionUnknown, "NodeStatusUnknown"
		}
		n.Status.Capacity["example.com/gpu"] = n.Status.Capacity["pods"]
		if _, err := nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		after := w.api.Node("n1")
		if gpus := after.Status.Allocatable["example.com/gpu"]; gpus.Value() != 110 {
			t.Errorf("allocatable %v; want the extended resource kept", after.Status.Allocatable)
		}
	})
}

func TestALeaseThatSomebodyElseWroteOrDeletedIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		leases := w.api.Admin().CoordinationV1().Leases("kube-node-lease")
		there, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there.Labels = map[string]string{"mine": "yes"}
		if there, err = leases.Update(t.Context(), there, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		renewed, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || !renewed.Spec.RenewTime.After(there.Spec.RenewTime.Time) || renewed.Labels["mine"] != "yes" {
			t.Errorf("lease %+v, %v; want it renewed and the label kept", renewed, err)
		}
		if err := leases.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if again, err := leases.Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || time.Since(again.Spec.RenewTime.Time) > 11*time.Second {
			t.Errorf("lease %+v, %v; want a new one", again, err)
		}
	})
}

func TestADeletedNodeIsNotMadeAgainUntilARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		service, stop := w.start()
		time.Sleep(time.Minute)
		if err := w.api.Admin().CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if w.api.Node("n1") != nil || service.keeper.View().Registered {
			t.Error("a deleted Node came back by itself")
		}
		stop()
		_, stop = w.start()
		defer stop()
		time.Sleep(time.Second)
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestARegisteredNodeKeepsItsTaintsAndGetsItsLabelsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		there := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"mine": "yes"}}}
		there.Status.NodeInfo.BootID = "b0"
		if _, err := w.api.Admin().CoreV1().Nodes().Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(2 * time.Second)
		n := w.api.Node("n1")
		if n.Labels["mine"] != "yes" || n.Labels[v1.LabelHostname] != "n1" || n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
			t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
		}
		if slices.ContainsFunc(n.Spec.Taints, func(x v1.Taint) bool { return x.Key == "dedicated" }) {
			t.Error("the taint of creation was put on a Node that was there")
		}
		if n.Status.NodeInfo.BootID != "b1" || !slices.Contains(w.events(), "Rebooted") {
			t.Errorf("boot id %s, events %v; want b1 and Rebooted", n.Status.NodeInfo.BootID, w.events())
		}
	})
}

func TestWithoutAnApiserverTheNodeCanBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.standalone = true
		service, stop := w.start()
		defer stop()
		time.Sleep(time.Second)
		r, err := service.server.GetNode(t.Context(), &nodestatusv1.GetNodeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var n v1.Node
		if err := n.Unmarshal(r.GetNode()); err != nil {
			t.Fatal(err)
		}
		if r.GetRegistered() || n.Name != "n1" || n.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("node %+v, registered %t", n.Status.Capacity, r.GetRegistered())
		}
		if _, err := service.server.GetLease(t.Context(), &nodestatusv1.GetLeaseRequest{}); err == nil {
			t.Error("a lease without an apiserver")
		}
	})
}

func TestMoreReservedThanThereIsEndsTheProcessWithTheReason(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := testConfig()
		cfg.KubeReserved = map[string]string{"memory": "9Gi"}
		conn := func(s *grpctest.Server) *grpc.ClientConn {
			c, err := s.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := conn(w.podsyncSrv), conn(w.statsSrv)
		defer a.Close()
		defer b.Close()
		service, err := New(cfg, Deps{Podsync: a, Stats: b, Addresses: host{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := service.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "reserved") {
			t.Errorf("error %v; want what is reserved", err)
		}
	})
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no name": func(c *Config) { c.NodeName = "" }, "no frequency": func(c *Config) { c.NodeStatusUpdateFrequency = 0 },
		"unknown signal": func(c *Config) { c.EvictionHard = map[string]string{"memory.free": "1Mi"} },
		"bad quantity":   func(c *Config) { c.SystemReserved = map[string]string{"cpu": "much"} },
	} {
		cfg := testConfig()
		change(&cfg)
		if _, err := New(cfg, Deps{}); err == nil {
			t.Errorf("%s: no error", name)
		} else if grpcstatus.Code(err) == codes.OK {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
