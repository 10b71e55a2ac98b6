package nodestatus

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

func (host) Addresses() ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
}

func (host) DefaultRoute(bool) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
}

func (host) Lookup(context.Context, string) ([]netip.Addr, error) {
	return nil, errors.New("no DNS here")
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
		for name, want := range map[v1.ResourceName]string{"cpu": "3500m", "memory": "6044Mi", "ephemeral-storage": "96636764k"} {
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
		for _, e := range w.api.Events() { // kubectl describe node looks for the name as UID
			if ref := e.InvolvedObject; ref.APIVersion != "v1" || ref.Kind != "Node" || ref.Name == "" || string(ref.UID) != ref.Name {
				t.Errorf("event %s is about %+v", e.Reason, ref)
			}
		}
	})
}

func TestWhatTheConfigurationLacksIsAnEventOfTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change = func(c *Config) {
			c.StartEvents = []Event{{Type: v1.EventTypeWarning, Reason: "ConfigurationWithoutEffect", Message: "Settings without their effect: evictionSoft"}}
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(10 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		if got := w.events(); !slices.Contains(got, "ConfigurationWithoutEffect") {
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

func TestANodeIsReadyOnlyWithItsCSINode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var refused atomic.Bool
		refused.Store(true)
		w.refuses = func(q fakeapiserver.Request) bool { return q.Resource == "csinodes" && refused.Load() }
		_, stop := w.start()
		defer func() { stop() }()
		time.Sleep(time.Minute)
		w.wantReady(v1.ConditionFalse, "failed to initialize CSINode: ")
		refused.Store(false)
		time.Sleep(90 * time.Second)
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		refused.Store(true)
		stop()
		_, stop = w.start()
		time.Sleep(time.Minute)
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		if n := w.flips(); n != 0 {
			t.Errorf("Ready turned %d times once it was", n)
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

// flips counts changes of the Ready condition's status after it was first True: a new
// Node waits for its CSINode.
func (w *world) flips() int {
	n, last := 0, v1.ConditionStatus("")
	for _, write := range w.api.Writes() {
		node, ok := write.New.(*v1.Node)
		if !ok {
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status != last && (n > 0 || c.Status == v1.ConditionTrue) {
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
		// Who asks waits up to 1.2 s after a failure, and the dial beneath as long.
		time.Sleep(4 * time.Second)
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

// A runtime may say that it is well and hang when it is asked for its containers.
func TestARuntimeThatListsNothingForThreeMinutesMakesTheNodeNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute + time.Second)
		w.podsync.set(func(p *podsync) { p.noLists = true })
		time.Sleep(170 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		time.Sleep(30 * time.Second)
		w.wantReady(v1.ConditionFalse, "PLEG is not healthy")
		w.podsync.set(func(p *podsync) { p.runtime.LastRelistTime = nil }) // podsync starts again, and cannot either
		time.Sleep(30 * time.Second)
		w.wantReady(v1.ConditionFalse, "PLEG is not healthy")
		w.podsync.set(func(p *podsync) { p.noLists = false })
		time.Sleep(20 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestARuntimeThatSaysItIsNotReadyMakesTheNodeNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.wantReady(v1.ConditionTrue, "")
		w.podsync.set(func(p *podsync) {
			p.runtime.RuntimeReady, p.runtime.RuntimeMessage = false, "reason:DockerDaemonNotReady message:no daemon"
		})
		time.Sleep(20 * time.Second)
		w.wantReady(v1.ConditionFalse, "container runtime not ready: RuntimeReady=false reason:DockerDaemonNotReady message:no daemon")
	})
}

// A clock that is set moves the time at which the runtime last answered far away from
// now, and a machine that was stopped for a while wakes up with old answers.
func TestAnAnswerThatIsOldAllAtOnceTurnsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute + time.Second)
		w.podsync.set(func(p *podsync) {
			p.noAnswer, p.runtime.LastOkTime = true, timestamppb.New(time.Now().Add(-time.Hour))
		})
		time.Sleep(10 * time.Second) // one answer, with a time from before the clock was set
		w.podsync.set(func(p *podsync) { p.noAnswer = false })
		time.Sleep(time.Minute)
		w.wantReady(v1.ConditionTrue, "")
		if n := w.flips(); n != 0 {
			t.Errorf("Ready turned %d times", n)
		}
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
