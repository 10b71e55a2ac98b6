package clientmetrics

import (
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
)

func TestWhoAsksNoApiserverHasTheSeriesOfItsQueuesAlone(t *testing.T) {
	r := metricdoc.New()
	if err := RegisterQueues(r); err != nil {
		t.Fatal(err)
	}
	golden.Lines(t, "testdata/queues.golden", r.Text())
}
