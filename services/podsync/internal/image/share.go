package image

import (
	"context"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slowPull is when a pull gives its place up and goes on beside the others: one
// that hangs must not hold all images of the node.
const slowPull = 5 * time.Minute

// pull is one pull that runs for all who want the same image with the same
// credentials. It ends when it is done or when nobody wants it any more.
type pull struct {
	done    chan struct{}
	cancel  context.CancelFunc
	wanters int
	result  result
}

type result struct {
	ref  string
	took time.Duration
	err  error
}

// share joins a pull that is under way, or begins one.
func (p *Puller) share(ctx context.Context, name string, auths []*runtimeapi.AuthConfig) result {
	key := name
	for _, a := range auths {
		key += "\x00" + a.String()
	}
	p.mu.Lock()
	pl := p.pulls[key]
	if pl == nil {
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		pl = &pull{done: make(chan struct{}), cancel: cancel}
		p.pulls[key] = pl
		go p.run(pullCtx, key, pl, name, auths)
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

func (p *Puller) run(ctx context.Context, key string, pl *pull, name string, auths []*runtimeapi.AuthConfig) {
	defer pl.cancel()
	pl.result = p.try(ctx, name, auths)
	p.mu.Lock()
	if p.pulls[key] == pl {
		delete(p.pulls, key)
	}
	p.mu.Unlock()
	close(pl.done)
}

// try pulls within the bound on parallel pulls, with each credential until one
// is accepted, or with none when there is none.
func (p *Puller) try(ctx context.Context, name string, auths []*runtimeapi.AuthConfig) result {
	if p.places != nil {
		select {
		case p.places <- struct{}{}:
			slow := time.AfterFunc(slowPull, func() { <-p.places })
			defer func() {
				if slow.Stop() {
					<-p.places
				}
			}()
		case <-ctx.Done():
			return result{err: ctx.Err()}
		}
	}
	began := time.Now()
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: name}
	if len(auths) == 0 {
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var errs []string
	var last error
	for _, auth := range auths {
		ref, err := p.deps.Client.PullImage(ctx, spec, auth, nil)
		if err == nil {
			return result{ref: ref, took: time.Since(began)}
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
	return result{err: last}
}
