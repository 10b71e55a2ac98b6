package observe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// slowConn is a runtime that answers Version and Status at once, has a stream of events,
// and takes its time for a list.
type slowConn struct {
	list func() time.Duration
}

func (s slowConn) Invoke(ctx context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	switch method {
	case runtimeapi.RuntimeService_Status_FullMethodName:
		proto.Merge(reply.(proto.Message), &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
		}}})
	case runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, runtimeapi.RuntimeService_ListContainers_FullMethodName:
		t := time.NewTimer(s.list())
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

func (s slowConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return quietStream{ctx: ctx}, nil
}

type quietStream struct {
	grpc.ClientStream
	ctx context.Context
}

func (q quietStream) SendMsg(any) error { return nil }
func (q quietStream) CloseSend() error  { return nil }
func (q quietStream) RecvMsg(any) error { <-q.ctx.Done(); return q.ctx.Err() }

type noSink struct{}

func (noSink) Observe(types.UID, podstate.Observed) {}
func (noSink) RuntimeSeen()                         {}
func (noSink) RuntimeChanged(Runtime)               {}

// A runtime under load answers each list late. nodestatus lets a list be overdue for
// three minutes, in a period of 66 s.
func TestARuntimeThatListsSlowlyIsNotTakenForOneThatCannot(t *testing.T) {
	for _, takes := range []time.Duration{25 * time.Second, 45 * time.Second, 80 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calm = 10 * time.Minute
				start := time.Now()
				conn := slowConn{list: func() time.Duration {
					if time.Since(start) < calm {
						return 100 * time.Millisecond
					}
					return takes
				}}
				o := New(Config{}, Deps{Client: cri.New(cri.Config{}, conn, conn, nil), Sink: noSink{}})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = o.Run(ctx) }()
				defer func() { cancel(); <-done }()
				for time.Sleep(time.Minute); time.Since(start) < calm+time.Hour; time.Sleep(time.Second) {
					r := o.Runtime()
					if age := time.Since(r.LastRelist); !r.Ready || !r.Events || age > 3*time.Minute+66*time.Second {
						t.Fatalf("after %v: ready %t, events %t, listed %v ago", time.Since(start), r.Ready, r.Events, age)
					}
				}
			})
		})
	}
}
