package nodepage

import (
	"strings"
	"testing"
	"time"
)

func TestEventsOfPodsAndOfTheNodeAreOneListTheNewestFirst(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	got := eventsOf("n", []Event{
		{Time: at(4), Kind: "Pod", Name: "p", Reason: "Started"}, {Time: at(1), Kind: "Pod", Name: "p", Reason: "Pulled"},
	}, []Event{{Time: at(3), Kind: "Node", Reason: "NodeReady"}, {Time: at(2), Kind: "Node", Reason: "Starting"}})
	var order []string
	for _, e := range got {
		order = append(order, e.Kind+" "+e.Name+" "+e.Reason)
	}
	if text := strings.Join(order, ", "); text != "Pod p Started, Node n NodeReady, Node n Starting, Pod p Pulled" {
		t.Error(text)
	}
	if none := eventsOf("n", nil, nil); none == nil || len(none) != 0 {
		t.Errorf("of nobody: %v, want an empty list", none)
	}
}
