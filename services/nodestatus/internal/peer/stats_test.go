package peer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

// mute is a stats that sends one frame on each stream.
type mute struct {
	statsv1.UnimplementedStatsServiceServer
}

func (mute) WatchSignals(_ *statsv1.WatchSignalsRequest, stream grpc.ServerStreamingServer[statsv1.WatchSignalsResponse]) error {
	if err := stream.Send(&statsv1.WatchSignalsResponse{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// said is a health.Reporter that keeps what it was told.
type said struct {
	mu   sync.Mutex
	told []string
}

func (s *said) Set(_ string, ready bool, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ready {
		s.told = append(s.told, message)
	}
}

func TestAStatsThatIsThereAndTellsNothingIsSaidToAndAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := grpctest.New(func(s *grpc.Server) { statsv1.RegisterStatsServiceServer(s, mute{}) })
		defer srv.Close()
		conn, err := srv.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		health, store := &said{}, NewStore(Host())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = NewStats(conn, health, store, 10*time.Second, nil).RunSignals(ctx)
		}()
		time.Sleep(30 * time.Second)
		first := store.Frame().Heard
		health.mu.Lock()
		if len(health.told) != 0 || first.IsZero() {
			t.Errorf("before it is late: %v", health.told)
		}
		health.mu.Unlock()
		time.Sleep(10 * time.Second)
		health.mu.Lock()
		if len(health.told) != 1 || health.told[0] != "follow the eviction signals of stats: timed out: it is there, and has told nothing for 35s; capacity and pressure stay as they were" {
			t.Errorf("%q", health.told)
		}
		health.mu.Unlock()
		if !store.Frame().Heard.After(first) {
			t.Error("it was not asked anew")
		}
		cancel()
		<-done
	})
}
