package probes

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
)

func TestTheMetricsAreAsRecorded(t *testing.T) {
	conn, err := grpc.NewClient("unix:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	process, probes := metricdoc.New(), metricdoc.New()
	if _, err := New(Config{}, Deps{Metrics: process, ProbeMetrics: probes, Epoch: 1, Podsync: conn}); err != nil {
		t.Fatal(err)
	}
	golden.Lines(t, "testdata/metrics.golden", process.Text())
	golden.Lines(t, "testdata/probe_metrics.golden", probes.Text())
}
