package csi

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

func TestEachCallOfADriverIsCountedWithHowItEnded(t *testing.T) {
	b := newBench(t, nil)
	reg := prometheus.NewRegistry()
	b.deps.Metrics = metrics.New(reg)
	b.register(t)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("set up by a driver that fails")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "csi_operations_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			text := ""
			for _, l := range m.GetLabel() {
				text += l.GetValue() + " "
			}
			got[text] = m.GetHistogram().GetSampleCount()
		}
	}
	for _, want := range []string{
		driverOf + " OK /csi.v1.Node/NodeGetInfo false ", driverOf + " Internal /csi.v1.Node/NodePublishVolume false ",
	} {
		if got[want] != 1 {
			t.Errorf("of %q there are %d in %v", want, got[want], got)
		}
	}
}

func TestADriversCodesAreFewSeriesWhateverItSends(t *testing.T) {
	b := newBench(t, nil)
	reg := prometheus.NewRegistry()
	b.deps.Metrics = metrics.New(reg)
	b.register(t)
	for i := range 100 {
		b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Code(1000+i), "made up") })
		if _, err := b.Setup(t.Context(), b.request()); err == nil {
			t.Fatal("set up by a driver that fails")
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "csi_operations_seconds" && len(f.GetMetric()) > 5 {
			t.Errorf("%d series, one for each number that the driver made up", len(f.GetMetric()))
		}
	}
}
