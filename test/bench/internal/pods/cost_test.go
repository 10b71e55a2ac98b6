package pods

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

func TestCountersAreSummedByTheLabelsAskedFor(t *testing.T) {
	text := []byte(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="422",resource="pods",subresource="status",verb="PATCH"} 1
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 5
# TYPE other counter
other{verb="PATCH"} 7
`)
	got, err := sums(text, "apiserver_request_total", "verb", "resource", "subresource")
	if want := map[string]float64{"PATCH pods status": 4, "POST events": 5}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := sums([]byte("no metrics{"), "x"); err == nil {
		t.Error("a text that is none was parsed")
	}
}

func TestWhatHappensForFewPodsIsNoCostOfAPod(t *testing.T) {
	r := report.New()
	before := cost{cpu: map[string]float64{"agent": 100}, requests: map[string]float64{"GET leases": 1, "POST events": 10}}
	after := cost{cpu: map[string]float64{"agent": 300}, requests: map[string]float64{"GET leases": 2, "POST events": 40}}
	addCost(r.Column("x"), before, after, 20)
	text := table(Settings{}, r, time.Unix(0, 0))
	if !strings.Contains(text, "| CPU per pod of agent, ms | 10.0 /") || !strings.Contains(text, "POST events | 1.5 /") || strings.Contains(text, "leases") {
		t.Error(text)
	}
}
