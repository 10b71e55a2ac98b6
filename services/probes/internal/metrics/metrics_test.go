package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

func newProbes(t *testing.T) *Probes {
	t.Helper()
	p, err := New(prometheus.NewRegistry(), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func target(uid string, typ probe.Type) probe.Target {
	return probe.Target{Key: probe.Key{PodUID: uid, Container: "c", Type: typ}, Namespace: "ns", Name: "pod"}
}

func TestOnlyWhatSaysSomethingAboutTheContainerIsCounted(t *testing.T) {
	for verdict, want := range map[probe.Verdict]struct {
		successful, failed float64
		durations          int
	}{
		probe.Passed:  {successful: 1, durations: 1},
		probe.Warned:  {successful: 1, durations: 1},
		probe.Failed:  {failed: 1},
		probe.Errored: {},
		probe.Skipped: {},
	} {
		p := newProbes(t)
		p.Attempt(target("u", probe.Liveness), verdict, time.Second)
		if n := testutil.CollectAndCount(p.duration); n != want.durations {
			t.Errorf("verdict %d: %d durations, want %d", verdict, n, want.durations)
		}
		for result, want := range map[string]float64{"successful": want.successful, "failed": want.failed} {
			if got := testutil.ToFloat64(p.total.WithLabelValues("Liveness", result, "c", "pod", "ns", "u")); got != want {
				t.Errorf("verdict %d: %g %s, want %g", verdict, got, result, want)
			}
		}
	}
}

func TestTheSeriesOfAProbeGoWithItAndThoseOfOthersStay(t *testing.T) {
	p := newProbes(t)
	gone := target("u", probe.Liveness)
	p.Attempt(gone, probe.Passed, time.Second)
	p.Attempt(gone, probe.Failed, time.Second)
	p.Attempt(target("u", probe.Readiness), probe.Passed, time.Second)
	p.Attempt(target("other", probe.Liveness), probe.Failed, time.Second)
	p.Forget(gone)
	if n := testutil.CollectAndCount(p.total); n != 2 {
		t.Errorf("%d counts stay, want 2", n)
	}
	if n := testutil.CollectAndCount(p.duration); n != 1 {
		t.Errorf("%d durations stay, want 1", n)
	}
}

func TestTheSeriesWantARegistryOfTheirOwn(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := New(registry, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := New(registry, time.Now()); err == nil {
		t.Error("they are registered twice")
	}
}
