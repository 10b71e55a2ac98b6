package peer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// podsync has one pod, which ends when it is stopped.
type podsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	podsapi.UnimplementedPodsServer
	changed chan struct{}

	mu          sync.Mutex
	here, there v1.PodPhase
	stop        *podsyncv1.StopPodRequest
	refuse      error
	starting    bool // It does not know all its pods.
	old         bool // It knows no shutdown.
}

func (p *podsync) SetShutdown(context.Context, *podsyncv1.SetShutdownRequest) (*podsyncv1.SetShutdownResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.old {
		return nil, status.Error(codes.Unimplemented, "")
	}
	return &podsyncv1.SetShutdownResponse{PodsKnown: !p.starting, PodsWithVolumes: 3, UidsWithVolumes: []string{"u"}}, nil
}

func (p *podsync) bytes(phase v1.PodPhase) []byte {
	priority := int32(7)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID("u")}, Spec: v1.PodSpec{Priority: &priority}, Status: v1.PodStatus{Phase: phase}}
	data, _ := pod.Marshal()
	return data
}

func (p *podsync) WatchPods(_ *podsapi.WatchPodsRequest, stream grpc.ServerStreamingServer[podsapi.WatchPodsEvent]) error {
	for first := true; ; first = false {
		p.mu.Lock()
		data := p.bytes(p.here)
		p.mu.Unlock()
		if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_ADDED, Pod: data}); err != nil {
			return err
		}
		if first {
			if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-p.changed:
		}
	}
}

func (p *podsync) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &podsapi.ListPodsResponse{Pods: [][]byte{p.bytes(p.here)}}, nil
}

func (p *podsync) ListDesiredPods(context.Context, *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &podsyncv1.ListDesiredPodsResponse{Pods: [][]byte{p.bytes(p.there)}}, nil
}

func (p *podsync) StopPod(_ context.Context, r *podsyncv1.StopPodRequest) (*podsyncv1.StopPodResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return nil, p.refuse
	}
	p.stop, p.here = r, v1.PodFailed
	p.changed <- struct{}{}
	return &podsyncv1.StopPodResponse{}, nil
}

// asking runs do with a client of it.
func asking(t *testing.T, do func(t *testing.T, p *podsync, pods *ShutdownPods)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &podsync{changed: make(chan struct{}, 1), here: v1.PodRunning, there: v1.PodRunning}
		server := grpctest.New(func(s *grpc.Server) {
			podsyncv1.RegisterPodSyncServiceServer(s, p)
			podsapi.RegisterPodsServer(s, p)
		})
		defer server.Close()
		conn, err := server.Dial(rpc.ClientOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		do(t, p, NewShutdownPods(NewPods(conn)))
	})
}

func TestAPodIsStoppedInTheKubeletsWordsAndItsEndIsSeen(t *testing.T) {
	asking(t, func(t *testing.T, p *podsync, pods *ShutdownPods) {
		ctx, cancel := context.WithCancel(t.Context())
		seen, done := make(chan []shutdown.Pod, 8), make(chan struct{})
		go func() {
			defer close(done)
			_ = pods.Close(ctx, func(list []shutdown.Pod, _, _ bool) { seen <- list })
		}()
		first := <-seen
		if len(first) != 1 || first[0] != (shutdown.Pod{UID: "u", Namespace: "shop", Name: "web", Priority: 7}) {
			t.Fatalf("%+v", first)
		}
		if stops, err := pods.Stop(ctx, first[0], 20*time.Second); !stops || err != nil {
			t.Fatal(stops, err)
		}
		const message = "Pod was terminated in response to imminent node shutdown."
		if r := p.stop; r.GetReason() != "Terminated" || r.GetMessage() != message || r.GetDisruptionReason() != "TerminationByKubelet" ||
			r.GetDisruptionMessage() != message || r.GetGrace().AsDuration() != 20*time.Second || !r.GetShutdown() || r.GetPod().GetUid() != "u" {
			t.Errorf("%v", r)
		}
		for list := range seen {
			if list[0].Ended {
				break
			}
		}
		if m, err := pods.Mounted(ctx); m.Unnamed != 2 || len(m.UIDs) != 1 || m.UIDs[0] != "u" || err != nil {
			t.Errorf("pods with volumes: %v, %v", m, err)
		}
		if n, err := pods.Untold(ctx); n != 1 || err != nil {
			t.Errorf("the apiserver has not heard: %d, %v", n, err)
		}
		p.mu.Lock()
		p.there = v1.PodFailed
		p.mu.Unlock()
		if n, err := pods.Untold(ctx); n != 0 || err != nil {
			t.Errorf("the apiserver has heard: %d, %v", n, err)
		}
		cancel()
		<-done
	})
}

func TestAPodThatPodsyncNeverStopsIsToldFromOneThatItDoesNotStopNow(t *testing.T) {
	asking(t, func(t *testing.T, p *podsync, pods *ShutdownPods) {
		for code, never := range map[codes.Code]bool{codes.NotFound: true, codes.FailedPrecondition: true, codes.Unimplemented: true, codes.Unavailable: false, codes.Internal: false} {
			p.refuse = status.Error(code, "no")
			stops, err := pods.Stop(t.Context(), shutdown.Pod{UID: "u"}, time.Second)
			if stops || (err == nil) != never {
				t.Errorf("%s: %v, %v", code, stops, err)
			}
		}
	})
}

func TestAPodsyncThatKnowsNoShutdownGoesByTheNode(t *testing.T) {
	asking(t, func(t *testing.T, p *podsync, pods *ShutdownPods) {
		p.old = true
		if known, _, err := pods.setShutdown(t.Context(), true); err != nil || !known {
			t.Error(known, err)
		}
	})
}

func TestAPodsyncThatWasJustStartedIsAskedUntilItKnowsItsPods(t *testing.T) {
	asking(t, func(t *testing.T, p *podsync, pods *ShutdownPods) {
		p.starting = true
		ctx, cancel := context.WithCancel(t.Context())
		wholes, done := make(chan bool, 8), make(chan struct{})
		go func() {
			defer close(done)
			_ = pods.Close(ctx, func(_ []shutdown.Pod, fresh, whole bool) {
				if fresh {
					wholes <- whole
				}
			})
		}()
		if <-wholes {
			t.Error("it was believed though it has just started")
		}
		p.mu.Lock()
		p.starting = false
		p.mu.Unlock()
		if !<-wholes {
			t.Error("it was not believed when it knew all")
		}
		cancel()
		<-done
	})
}
