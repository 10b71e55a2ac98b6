package podsync

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// The runtime answers Status and hangs at every list: before podsync starts, or an hour later.
func TestARuntimeWhoseListsHangIsSeenOutside(t *testing.T) {
	for name, late := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Bool
				hung.Store(!late)
				rt := fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}, Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
					return fakecri.Fault{Hang: hung.Load() && strings.Contains(method, "List")}
				}})
				reg := prometheus.NewPedanticRegistry()
				told := health.NewTracker(logr.Discard())
				s := start(t, rt, reg, told)
				time.Sleep(10 * time.Minute)
				before := series(t, reg, "kubelet_pleg_relist_duration_seconds")
				hung.Store(true)
				time.Sleep(30 * time.Minute)
				if last := s.observer.Runtime().LastRelist; time.Since(last) < 29*time.Minute {
					t.Errorf("others are told that everything was listed at %v", last)
				}
				if err := s.SyncLoop(5 * time.Minute); err == nil {
					t.Error("/healthz/syncloop is well")
				}
				if got := series(t, reg, "kubelet_pleg_last_seen_seconds"); got == nil {
					t.Error("kubelet_pleg_last_seen_seconds is not there")
				}
				if after := series(t, reg, "kubelet_pleg_relist_duration_seconds"); *after == *before {
					t.Errorf("kubelet_pleg_relist_duration_seconds: %v lists before, %v after half an hour of lists that hang", *before, *after)
				}
			})
		})
	}
}

// series is a gauge's value or a histogram's count.
func series(t *testing.T, reg *prometheus.Registry, name string) *float64 {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) > 0 {
			v := f.GetMetric()[0].GetGauge().GetValue() + float64(f.GetMetric()[0].GetHistogram().GetSampleCount())
			return &v
		}
	}
	return nil
}
