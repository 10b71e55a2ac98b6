package image

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// slowPull is when a pull gives its place up and goes on beside the others: one
// that hangs must not hold all images of the node. leastSlow is the same of a
// namespace of which many pulls are under way.
const slowPull, leastSlow = 5 * time.Minute, 30 * time.Second

// pull is one pull that runs for all who want the same image with the same
// credentials. It ends when it is done or when nobody wants it any more.
type pull struct {
	done    chan struct{}
	cancel  context.CancelFunc
	wanters int
	turn    *turn
	result  result
}

type result struct {
	ref  string
	size uint64
	took time.Duration
	err  error
}

// share joins a pull that is under way, or begins one.
func (p *Puller) share(ctx context.Context, namespace, name string, creds []credential) result {
	key := name
	for i := range creds {
		key += "\x00" + creds[i].key()
	}
	p.mu.Lock()
	pl := p.pulls[key]
	if pl == nil {
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		pl = &pull{done: make(chan struct{}), cancel: cancel, turn: p.turns.ask(namespace)}
		p.pulls[key] = pl
		go p.run(pullCtx, key, pl, name, creds)
	} else {
		p.turns.join(pl.turn, namespace)
	}
	pl.wanters++
	p.mu.Unlock()
	select {
	case <-pl.done:
		return pl.result
	case <-ctx.Done():
	}
	p.mu.Lock()
	pl.wanters--
	if pl.wanters == 0 {
		pl.cancel()
		if p.pulls[key] == pl {
			delete(p.pulls, key)
		}
	}
	p.mu.Unlock()
	return result{err: ctx.Err()}
}

func (p *Puller) run(ctx context.Context, key string, pl *pull, name string, creds []credential) {
	defer pl.cancel()
	pl.result = p.inTurn(ctx, pl.turn, name, creds)
	p.mu.Lock()
	if p.pulls[key] == pl {
		delete(p.pulls, key)
	}
	p.mu.Unlock()
	close(pl.done)
}

// inTurn pulls within the bounds on pulls at once and per second. Above the
// rate a pull waits for its turn; the kubelet fails it, and it waits longer.
func (p *Puller) inTurn(ctx context.Context, t *turn, name string, creds []credential) result {
	yield, end, err := p.turns.take(ctx, t)
	if err != nil {
		return result{err: err}
	}
	defer end()
	// Of a namespace that has pulls beside those with a place it is sooner.
	slow := time.AfterFunc(max(slowPull/time.Duration(1+t.beside), leastSlow), yield)
	defer slow.Stop()
	if p.limiter != nil {
		if err := p.limiter.Wait(ctx); err != nil {
			return result{err: fmt.Errorf("pull QPS exceeded: %w", err)}
		}
	}
	if p.deps.Records == nil {
		res, _ := p.try(ctx, name, creds)
		return res
	}
	return p.recorded(ctx, name, creds)
}

// recorded pulls with a note before and after, so that nobody uses an image
// with credentials that did not pull it.
func (p *Puller) recorded(ctx context.Context, name string, creds []credential) result {
	log := logr.FromContextOrDiscard(ctx)
	if err := p.deps.Records.Begin(name); err != nil {
		return result{err: err}
	}
	res, by := p.try(ctx, name, creds)
	if res.err != nil {
		ended := p.deps.Records.Failed
		if ctx.Err() != nil || cri.IsUnsure(res.err) {
			ended = p.deps.Records.Unsure
		}
		if err := ended(name); err != nil {
			log.Error(err, "Could not take back the note that an image is pulled; it is verified again", "image", name)
		}
		return res
	}
	if err := p.deps.Records.Pulled(name, res.ref, by.grant()); err != nil {
		log.Error(err, "Could not note with which credentials an image was pulled; it is verified again", "image", name)
	}
	return res
}

// try pulls with each credential until one is accepted, or with none when there
// is none, and says which one it was.
func (p *Puller) try(ctx context.Context, name string, creds []credential) (result, *credential) {
	began := time.Now()
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: name}
	if len(creds) == 0 {
		creds = []credential{{}}
	}
	var errs []string
	var last error
	for i := range creds {
		ref, err := p.deps.Client.PullImage(ctx, spec, creds[i].auth, nil)
		if err == nil {
			res := result{ref: ref, took: time.Since(began)}
			if img, err := p.deps.Client.Image(ctx, name); err == nil && img != nil {
				res.ref, res.size = img.GetId(), img.GetSize()
			}
			p.metrics.pulled(res)
			return res, &creds[i]
		}
		last = err
		errs = append(errs, err.Error())
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) > 1 {
		last = fmt.Errorf("[%s]: %w", strings.Join(errs[:len(errs)-1], ", "), last)
	}
	return result{err: last}, nil
}
