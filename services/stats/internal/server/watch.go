package server

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/signal"
)

const (
	defaultPeriod = 10 * time.Second
	minPeriod     = time.Second
	// looksPerPeriod is how often signals are measured in a period, to send
	// one at once that moved; a look is half a dozen small files.
	looksPerPeriod = 4
)

// WatchSignals implements StatsService.
func (s *Server) WatchSignals(r *statsv1.WatchSignalsRequest, stream grpc.ServerStreamingServer[statsv1.WatchSignalsResponse]) error {
	period := defaultPeriod
	if r.GetPeriod() != nil {
		period = r.GetPeriod().AsDuration()
	}
	if period < minPeriod {
		return fmt.Errorf("%w: period %s; ask for %s or more", rpcerr.ErrInvalid, period, minPeriod)
	}
	ctx := stream.Context()
	ticker := time.NewTicker(max(period/looksPerPeriod, minPeriod))
	defer ticker.Stop()
	var sent []signal.Signal
	var sentAt time.Time
	failed := false
	for {
		now, err := s.Collector.Signals(ctx)
		switch {
		case err != nil && sent == nil:
			return fmt.Errorf("%w: measure the eviction signals: %w", rpcerr.ErrUnavailable, err)
		case err != nil && !failed:
			klog.FromContext(ctx).Error(err, "Eviction signals are not measured, the watcher hears nothing until they are")
		case err == nil && (signal.Moved(sent, now) || time.Since(sentAt) >= period-minPeriod/2):
			if err := stream.Send(s.frame(now)); err != nil {
				return err
			}
			sent, sentAt = now, time.Now()
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Server) frame(signals []signal.Signal) *statsv1.WatchSignalsResponse {
	out := &statsv1.WatchSignalsResponse{Epoch: s.Epoch}
	for _, x := range signals {
		out.Signals = append(out.Signals, &statsv1.Signal{
			Name: x.Name, Available: x.Available, Capacity: x.Capacity, Time: timestamppb.New(x.Time),
		})
	}
	return out
}
