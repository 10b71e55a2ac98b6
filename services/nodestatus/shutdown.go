package nodestatus

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// ShutdownLine tells of the machine's shutdowns, and takes that the pods have ended.
type ShutdownLine interface {
	// Run has told called with each state, the first at once, or with why none is known,
	// until ctx is done.
	Run(ctx context.Context, told func(nodeshutdown.State, error)) error
	// Done lets the shutdown that began at since go on.
	Done(since time.Time)
}

// followShutdowns makes what ends the pods when the machine goes down, where that is
// configured.
func (s *Service) followShutdowns(cfg Config, deps Deps, store *peer.Store, pods *peer.Pods) error {
	if deps.Metrics != nil {
		for _, c := range shutdownTimes(cfg.ShutdownState) {
			if err := deps.Metrics.Register(c); err != nil {
				return fmt.Errorf("nodestatus: register metrics: %w", err)
			}
		}
	}
	if shutdown.Total(cfg.ShutdownGroups) == 0 {
		return nil
	}
	note := func(string) {}
	if deps.Note != nil {
		note = func(problem string) { deps.Note("shutdown", problem) }
	}
	line := deps.Shutdowns
	if line == nil {
		line = nodeshutdown.NewClient(cfg.ShutdownSocket)
	}
	store.AwaitShutdown()
	s.shutdown = shutdown.New(cfg.ShutdownGroups, shutdown.Deps{
		Line: peer.NewShutdown(line, note), Pods: peer.NewShutdownPods(pods), Events: s.events, SetNode: store.SetShuttingDown,
	})
	return nil
}

// shutdownTimes say when the last shutdown was, from the file; 0 without one.
func shutdownTimes(path string) []prometheus.Collector {
	gauge := func(name, help string, of func(nodeshutdown.Times) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_" + name + "_time_seconds", Help: "[ALPHA] " + help}, func() float64 {
			times, err := nodeshutdown.ReadTimes(path)
			if err != nil {
				return 0 // There was none yet.
			}
			return float64(max(0, of(times)))
		})
	}
	return []prometheus.Collector{
		gauge("start", "Last graceful shutdown start time since unix epoch in seconds", func(t nodeshutdown.Times) int64 { return t.StartTime.Unix() }),
		gauge("end", "Last graceful shutdown end time since unix epoch in seconds", func(t nodeshutdown.Times) int64 { return t.EndTime.Unix() }),
	}
}
