package event

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

func TestTheNewestEventsAreKeptWithoutAnApiserverToo(t *testing.T) {
	s := New("n", nil)
	for i := range 2 * mostRecent {
		for range 3 {
			s.Send(context.Background(), node.Event{Type: "Normal", Reason: fmt.Sprint(i), Message: strings.Repeat("é", longMessage)})
		}
	}
	got := s.Recent()
	if len(got) != mostRecent || got[0].Reason != fmt.Sprint(mostRecent) || got[len(got)-1].Reason != fmt.Sprint(2*mostRecent-1) {
		t.Fatalf("%d events, from %s", len(got), got[0].Reason)
	}
	for _, e := range got {
		if len(e.Message) > longMessage+8 || e.At.IsZero() || e.Count != 3 {
			t.Errorf("%d bytes at %s, %d times", len(e.Message), e.At, e.Count)
		}
	}
}
