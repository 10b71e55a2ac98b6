package kubeclient

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
)

// errNoBurst is client-go's rule.
var errNoBurst = errors.New("where requests are bounded in a second, at least one has to go out at once")

// Rate bounds a client's requests, and can be set while they go out: what waits then goes
// by the rate of before. It is a flowcontrol.RateLimiter. Safe for concurrent use.
type Rate struct {
	now atomic.Pointer[limit]
}

// limit is one that says itself that it is none.
type limit struct {
	flowcontrol.RateLimiter
	qps float32
}

// NewRate bounds requests to qps in a second, after burst at once; a qps of 0 and less lets
// them out at any rate.
func NewRate(qps float32, burst int) (*Rate, error) {
	r := &Rate{}
	return r, r.Set(qps, burst)
}

// Set has another rate be used from now on. With an error it stays as it is.
func (r *Rate) Set(qps float32, burst int) error {
	if qps <= 0 {
		r.now.Store(&limit{flowcontrol.NewFakeAlwaysRateLimiter(), -1})
		return nil
	}
	if burst <= 0 {
		return errNoBurst
	}
	r.now.Store(&limit{flowcontrol.NewTokenBucketRateLimiter(qps, burst), qps})
	return nil
}

// TryAccept implements flowcontrol.RateLimiter.
func (r *Rate) TryAccept() bool { return r.now.Load().TryAccept() }

// Accept implements flowcontrol.RateLimiter.
func (r *Rate) Accept() { r.now.Load().Accept() }

// Wait implements flowcontrol.RateLimiter.
func (r *Rate) Wait(ctx context.Context) error { return r.now.Load().Wait(ctx) }

// Stop implements flowcontrol.RateLimiter.
func (r *Rate) Stop() { r.now.Load().Stop() }

// QPS implements flowcontrol.RateLimiter; -1 where there is no limit.
func (r *Rate) QPS() float32 { return r.now.Load().qps }
