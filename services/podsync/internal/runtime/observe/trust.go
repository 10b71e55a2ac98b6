package observe

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// lateEvent is how long an event may come after what it tells of was seen by
	// looking, before the stream counts as dead.
	lateEvent = 5 * time.Second
	// passing is how much earlier than that the stream may have said its last:
	// events and looks pass each other.
	passing = time.Second
)

// trust judges the stream of events. A connection that stands says nothing
// about whether events come; what is seen by looking (after our own actions,
// and by the slow list) must also be told. When it is not, the stream is opened
// anew, and until an event comes everything is listed as if there were none.
// Safe for concurrent use.
type trust struct {
	mu     sync.Mutex
	cut    context.CancelFunc // ends the stream; nil while there is none
	open   time.Time          // when it was opened
	last   time.Time          // when an event came last
	asked  bool               // a judgement is due
	doubts bool               // the stream before was dead, and no event has come since
}

// opened notes a new stream, and says whether it has to prove itself.
func (t *trust) opened(cut context.CancelFunc) (doubted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut, t.open = cut, time.Now()
	return t.doubts
}

func (t *trust) closed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = nil
}

func (t *trust) heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.doubts = time.Now(), false
}

// expectEvent takes in that something was found by looking which happened at
// the given time (zero: nothing): the stream must have something to say, too.
func (o *Observer) expectEvent(ctx context.Context, happened time.Time) {
	t := &o.trust
	t.mu.Lock()
	defer t.mu.Unlock()
	if happened.IsZero() || t.asked || t.cut == nil || !happened.After(t.open) {
		return
	}
	t.asked = true
	least, log := time.Now().Add(-passing), klog.FromContext(ctx)
	time.AfterFunc(lateEvent, func() {
		if !t.dead(least) {
			return
		}
		o.setEvents(false)
		o.kick.Set()
		log.Info("The runtime's stream of container events is silent though containers change; it is opened anew, and containers are listed until an event comes", "every", o.cfg.RelistNoEvents.String())
	})
}

// dead cuts the stream if it has said nothing since the given time.
func (t *trust) dead(least time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = false
	if t.cut == nil || !t.last.Before(least) || t.open.After(least) {
		return false
	}
	t.doubts = true
	t.cut()
	return true
}
