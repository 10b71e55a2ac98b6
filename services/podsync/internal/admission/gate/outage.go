package gate

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// outage is when the runtime was last seen not to answer. Safe for concurrent use.
type outage struct{ last atomic.Pointer[time.Time] }

// discount takes the time until the end of the last outage from that in which pods
// have been stopped: nobody could be told to end. Who waits for them asks every
// second, so an outage is seen.
func (o *outage) discount(leaving map[types.UID]time.Duration, away bool, now time.Time) {
	if away {
		o.last.Store(&now)
	}
	if last := o.last.Load(); last != nil {
		for uid, long := range leaving {
			leaving[uid] = min(long, now.Sub(*last))
		}
	}
}
