package peer

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

func TestAFullNodesResultsFitIntoMessagesThatPodsyncTakes(t *testing.T) {
	const podsyncTakes = 4 << 20
	text := strings.Repeat("x", 10<<10)
	results, events := make([]probe.Result, 1500), make([]probe.Event, 256)
	for i := range results {
		results[i].Message = text
	}
	for i := range events {
		events[i].Message = text
	}
	c := &Client{}
	var gotResults, gotEvents int
	for _, req := range c.requests(results, events) {
		if size := proto.Size(req); size > podsyncTakes {
			t.Errorf("a message has %d bytes", size)
		}
		gotResults, gotEvents = gotResults+len(req.GetResults()), gotEvents+len(req.GetEvents())
	}
	if gotResults != len(results) || gotEvents != len(events) {
		t.Errorf("%d results and %d events are sent", gotResults, gotEvents)
	}
	if first := c.requests(nil, nil); len(first) != 1 {
		t.Errorf("with nothing to say %d messages are sent, want one", len(first))
	}
}
