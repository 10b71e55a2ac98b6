package peer

import (
	"context"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
)

// addressesPeriod is between two looks at the host's addresses.
const addressesPeriod = time.Minute

// Addresses follows the node's addresses.
type Addresses struct {
	// Find finds them; existing are those that the Node has.
	Find func(ctx context.Context, existing []v1.NodeAddress) ([]v1.NodeAddress, error)
	// Health is told when they cannot be found.
	Health health.Reporter
	// Store takes them.
	Store *Store
	// Existing returns those that the Node has.
	Existing func() []v1.NodeAddress
	// Changed is called after they have; nil calls nothing.
	Changed func()
}

// Run follows them until ctx is done.
func (a Addresses) Run(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	var last []v1.NodeAddress
	for {
		wait := addressesPeriod
		callCtx, cancel := context.WithTimeout(ctx, callDeadline)
		found, err := a.Find(callCtx, a.Existing())
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			a.Health.Set("addresses", false, fmt.Sprintf("find the node's addresses: %v", err))
			wait = retry.Next()
		default:
			a.Health.Set("addresses", true, "")
			retry.Reset()
			if !reflect.DeepEqual(last, found) {
				last = found
				a.Store.setAddresses(found)
				if a.Changed != nil {
					a.Changed()
				}
			}
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}
