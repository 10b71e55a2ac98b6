package growth

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// follow has a claim read again and again while pods use its volume, unless somebody does.
// seen is how it was looked at. Of ctx only the logger lasts.
func (g *Volumes) follow(ctx context.Context, pv string, seen *v1.PersistentVolumeClaim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.all[pv]
	if st == nil || st.stop != nil || g.life.Err() != nil {
		return
	}
	on, stop := context.WithCancel(klog.NewContext(g.life, klog.FromContext(ctx)))
	st.stop = stop
	g.work.Go(func() {
		defer stop()
		g.followOne(on, pv, st, seen.ResourceVersion, claims.Growing(seen))
	})
}

// followOne reads one claim until ctx is done.
func (g *Volumes) followOne(ctx context.Context, pv string, st *state, seen string, growing bool) {
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 2 * time.Minute, Jitter: 0.1})
	soon, said := time.Duration(0), reason.Said{}
	wait := g.seldom()
	if growing {
		soon, wait = g.cfg.Soon, g.cfg.Soon
	}
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		now, growing, err := g.look(ctx, pv, st, seen)
		if err == nil && now != seen { // else the claim could not even be read
			if lasted, was := said.Good(); was {
				klog.FromContext(ctx).Info("A volume that could not be grown has grown, or need not any more", "volume", pv, "after", lasted)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if since, tell := said.Failed(err); tell {
				klog.FromContext(ctx).Info("A volume could not be grown; it is tried again by itself", "volume", pv, "since", since.Format(time.RFC3339), "err", err)
			}
			wait = retry.Next()
			continue
		case !growing:
			soon, wait = 0, g.seldom()
		case soon == 0 || now != seen:
			soon, wait = g.cfg.Soon, g.cfg.Soon
		default:
			soon = min(soon+soon/2, g.cfg.Again)
			wait = soon
		}
		seen = now
		retry.Reset()
	}
}

// seldom is how soon a claim is read again with which nothing is to be expected.
func (g *Volumes) seldom() time.Duration { return g.cfg.Again + rand.N(g.cfg.Again/2) }

// look reads a claim, has its volume grown if need be, and says which version it was, and
// whether it is on its way to another size. One that cannot be read has not changed.
func (g *Volumes) look(ctx context.Context, pv string, st *state, seen string) (now string, growing bool, err error) {
	v, has := g.user(st)
	if !has {
		return seen, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	claim, err := g.deps.Claims.Claim(ctx, v.Pod.UID, v.Pod.Namespace, v.Claim)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("A claim cannot be read; its volume stays as large as it is", "object", klog.KRef(v.Pod.Namespace, v.Claim), "err", err)
		return seen, false, nil
	}
	if claim.ResourceVersion == seen {
		return seen, claims.Growing(claim), nil
	}
	if claim.Spec.VolumeName != pv {
		return claim.ResourceVersion, false, nil // another claim of the name, which is of another volume
	}
	select {
	case st.turn <- struct{}{}:
		defer func() { <-st.turn }()
	case <-ctx.Done():
		return seen, false, context.Cause(ctx)
	}
	if err := g.whileUsed(ctx, st, v, claim); err != nil {
		return seen, true, err
	}
	return claim.ResourceVersion, claims.Growing(claim), nil
}

// user is one of those who use a volume: one that writes, if there is.
func (g *Volumes) user(st *state) (v Volume, has bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range st.users {
		if v, has = one, true; !v.ReadOnly {
			return v, true
		}
	}
	return v, has
}
