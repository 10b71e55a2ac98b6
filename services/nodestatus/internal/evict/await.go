package evict

import (
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// patience is how long is waited in all for figures by which to choose a pod: who frees a
	// little, or has pods end for limits of their own, begins anew for how long figures of
	// layers may take, and would be waited for without end.
	patience = 2 * layersAge
	// forgiven is after how long without such a wait those before do not count any more.
	forgiven = 10 * time.Minute
)

// awaited is for how long was waited since a pod was chosen, and when last.
type awaited struct {
	spent time.Duration
	last  time.Time
}

// awaits says whether a pod is waited for, for as long as until a hold is over, of which not
// all was measured since a time. asked is when that began to be found out.
func (l *Loop) awaits(signal string, asked, since time.Time) bool {
	now := time.Now()
	a := l.awaited[signal]
	if now.Sub(a.last) >= forgiven {
		a = awaited{}
	}
	if now.Sub(since) >= layersAge || a.spent >= patience {
		return false
	}
	l.awaited[signal] = awaited{a.spent + now.Sub(asked) + soon, now}
	return true
}

// chose forgets what was waited for, for a pod was chosen by it, or nobody is to go.
func (l *Loop) chose(signal string) {
	if pressure.KindOf(signal) == pressure.Disk {
		l.measuring = nil
	}
	delete(l.since, signal)
	delete(l.awaited, signal)
}
