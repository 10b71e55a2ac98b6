package evict

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/rpcerr"
)

const (
	// ttl is how long podsync goes by what it was told; renewal is after how long it
	// is told again while there is pressure.
	ttl     = time.Minute
	renewal = 20 * time.Second
	// calmTTL and calmRenewal are the same where there is none: else a Node that could not be
	// written since would speak again. It is as long as podsync lets it be, so that a node that
	// is short of nothing has almost nothing to do.
	calmTTL     = time.Hour
	calmRenewal = calmTTL / 3
)

// lasts is how long podsync goes by conditions that it is told, and after how long it is told again.
func lasts(conditions []string) (forSo, again time.Duration) {
	if len(conditions) == 0 {
		return calmTTL, calmRenewal
	}
	return ttl, renewal
}

// Forgotten says that podsync knows of nothing that it was told, for it was started
// since: it is told again.
func (l *Loop) Forgotten() {
	l.forgotten.Store(true)
	l.tell.Set()
}

// RunPressure tells podsync what the node is short of until ctx is done: at once
// when that changed, and again and again, less often while it is short of nothing.
func (l *Loop) RunPressure(ctx context.Context) error {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2})
	var last []string
	var at time.Time
	failed := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.tell:
		case <-timer.C:
		}
		judgement, _, known := l.deps.Judge.Judge(time.Now())
		names := judgement.Names()
		counts, again := lasts(names)
		wait := renewal
		if !judgement.Again.IsZero() {
			wait = min(wait, time.Until(judgement.Again)+time.Millisecond)
		}
		if l.forgotten.Swap(false) {
			at = time.Time{}
		}
		// What a run before this one said stands until it is known what that was.
		if known && l.deps.Judge.Seeded() && (at.IsZero() || !slices.Equal(names, last) || time.Since(at) >= again) {
			err := l.deps.Podsync.SetPressure(ctx, names, counts)
			switch {
			case err == nil:
				if !slices.Equal(names, last) {
					log.Info("Pressure changed, podsync knows", "conditions", names)
				}
				last, at, failed = names, time.Now(), false
				retry.Reset()
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, rpcerr.ErrUnimplemented):
				wait = unserved // It goes by the Node's conditions.
			default:
				wait = retry.Next()
				if !failed {
					log.Error(err, "podsync was not told about pressure, trying again")
				}
				failed = true
			}
		}
		timer.Reset(wait)
	}
}
