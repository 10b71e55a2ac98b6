package event

import (
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

const (
	// mostRecent bounds how many Events are kept for people, longMessage each.
	mostRecent  = 50
	longMessage = 1 << 10
)

// Sent is an Event as it was given to Send.
type Sent struct {
	node.Event
	// At is when it was sent last, Count how often in a row.
	At    time.Time
	Count int
}

// Recent returns the newest Events, a bounded number, oldest first.
func (s *Sender) Recent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recent)
}

// keep notes an Event for Recent.
func (s *Sender) keep(e node.Event, at time.Time) {
	if len(e.Message) > longMessage {
		e.Message = strings.ToValidUTF8(strings.Clone(e.Message[:longMessage]), "") + " …"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.recent); n > 0 && s.recent[n-1].Event == e {
		s.recent[n-1].At = at
		s.recent[n-1].Count++
		return
	}
	if len(s.recent) == mostRecent {
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	s.recent = append(s.recent, Sent{Event: e, At: at, Count: 1})
}
