package peer

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// using is a podsync that uses volumes.
type using struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	frames chan *podsyncv1.WatchVolumesInUseResponse // nil ends the stream
	asked  *atomic.Int32                             // how often for the runtime
}

func (u using) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	u.asked.Add(1)
	return &podsyncv1.GetRuntimeResponse{RuntimeReady: true, NetworkReady: true}, nil
}

func (u using) WatchVolumesInUse(_ *podsyncv1.WatchVolumesInUseRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchVolumesInUseResponse]) error {
	for {
		select {
		case f := <-u.frames:
			if f == nil {
				return status.Error(codes.Unavailable, "restarted")
			}
			if err := stream.Send(f); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func TestTheVolumesInUseAreThoseThatPodsyncSaysAndStayWhileItIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		podsync := using{frames: make(chan *podsyncv1.WatchVolumesInUseResponse)}
		conn := grpctest.Serve(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, podsync) })
		store := NewStore(node.Host{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- VolumesInUse{Podsync: conn, Store: store}.Run(ctx) }()
		said := func(want []string) {
			t.Helper()
			synctest.Wait()
			if got := store.Get(); !slices.Equal(got.VolumesInUse, want) || (want == nil) != (got.VolumesInUse == nil) {
				t.Errorf("in use are %q, want %q", got.VolumesInUse, want)
			}
		}
		said(nil)
		podsync.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 1, Revision: 1, Snapshot: true, Names: []string{"b"}}
		podsync.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 1, Revision: 2, Names: []string{"a"}}
		said([]string{"a", "b"})
		podsync.frames <- nil
		said([]string{"a", "b"})
		podsync.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 2, Revision: 1, Snapshot: true, Names: []string{"a", "c"}}
		podsync.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 2, Revision: 2, RemovedNames: []string{"a"}}
		said([]string{"c"})
		podsync.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 2, Revision: 3, RemovedNames: []string{"c"}}
		said([]string{})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAPodsyncWhoseStreamHasEndedIsAskedAtOnceWhatItWasToldOfPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restarted := using{frames: make(chan *podsyncv1.WatchVolumesInUseResponse), asked: &atomic.Int32{}}
		conn := grpctest.Serve(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, restarted) })
		store := NewStore(node.Host{})
		var told atomic.Int32
		podsync := NewPodsync(conn, health.Discard(), store, time.Hour, func(pressure.Told) { told.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- podsync.RunRuntime(ctx) }()
		go func() { done <- VolumesInUse{Podsync: conn, Store: store, Begins: podsync.AskNow}.Run(ctx) }()
		restarted.frames <- &podsyncv1.WatchVolumesInUseResponse{Epoch: 1, Revision: 1, Snapshot: true}
		time.Sleep(time.Minute)
		before := told.Load()
		restarted.frames <- nil
		time.Sleep(time.Second)
		if now := told.Load(); now != before+1 || now != restarted.asked.Load() {
			t.Errorf("within a second of the end of podsync it was asked %d times, and %d answers were taken in; want one", restarted.asked.Load()-before, now-before)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
