package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// slowPull is when a pull gives its place up and goes on beside the others: one
// that hangs must not hold all images of the node. leastSlow is the same of a
// namespace of which many pulls are under way.
const slowPull, leastSlow = 5 * time.Minute, 30 * time.Second

// pull is one pull that runs for all who want the same image and cannot get another
// one; see key. It ends when it is done or when nobody wants it any more.
type pull struct {
	name    string
	request Request // of who came first
	creds   []credential

	// placed is closed when the pull has a place, begun when it may go on, at beganAt.
	placed, begun chan struct{}
	beganAt       time.Time
	done          chan struct{}

	cancel  context.CancelFunc
	wanters int
	turn    *turn
	result  result
}

// joinWithin is how long after its beginning others join a pull whose policy is to ask
// each time: a large image takes an hour, and what the registry had when it began is not
// what it has at its end.
const joinWithin = 10 * time.Second

// joins says whether a request gets what it asks for by a pull that is under way.
func (pl *pull) joins(r Request) bool {
	select {
	case <-pl.begun:
		return policy(r) != v1.PullAlways || time.Since(pl.beganAt) <= joinWithin
	default:
		return true
	}
}

type result struct {
	ref  string
	size uint64
	took time.Duration
	err  error
}

// key tells apart pulls that may end differently: besides the credentials a runtime
// goes by the pod's namespace (CRI-O: the policy for signatures, credentials of its
// own), its runtime class, and what is written on it for the runtime (containerd: the
// snapshotter). What else is written on it may be different for each pod of a
// Deployment, and no runtime looks at that.
func key(r Request, name string, creds []credential) string {
	h := sha256.New() // annotations may be long
	_, _ = fmt.Fprintf(h, "%q %q", name, r.Pod.Namespace)
	if class := r.Pod.Spec.RuntimeClassName; class != nil {
		_, _ = fmt.Fprintf(h, " class %q", *class)
	}
	for _, annotation := range slices.Sorted(maps.Keys(r.Pod.Annotations)) {
		if ofRuntime(annotation) {
			_, _ = fmt.Fprintf(h, " %q=%q", annotation, r.Pod.Annotations[annotation])
		}
	}
	for i := range creds {
		_, _ = fmt.Fprintf(h, " creds %q", creds[i].key())
	}
	return string(h.Sum(nil))
}

// ofRuntime says whether an annotation is one that a runtime has named.
func ofRuntime(annotation string) bool {
	for _, word := range []string{"containerd", "cri-o", "crio.io", "io.kubernetes.cri."} {
		if strings.Contains(annotation, word) {
			return true
		}
	}
	return false
}

// share joins a pull that is under way, or begins one.
func (p *Puller) share(ctx context.Context, r Request, name string, creds []credential) result {
	key := key(r, name, creds)
	p.mu.Lock()
	pl := p.pulls[key]
	if pl == nil || !pl.joins(r) {
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		pl = &pull{name: name, request: r, creds: creds, placed: make(chan struct{}), begun: make(chan struct{}), done: make(chan struct{}), cancel: cancel, turn: p.turns.ask(r.Pod.Namespace)}
		p.pulls[key] = pl
		go p.run(pullCtx, key, pl)
	}
	pl.wanters++
	p.mu.Unlock()
	p.tell(ctx, r, pl)
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

// tell tells who wants an image what its pull waits for, until it begins.
func (p *Puller) tell(ctx context.Context, r Request, pl *pull) {
	if r.Waits == nil {
		return
	}
	for _, stage := range []struct {
		reached <-chan struct{}
		what    func(namespace string) string
	}{{pl.placed, p.turns.bound}, {pl.begun, p.rate}} {
		select {
		case <-stage.reached:
			continue
		case <-pl.done:
			return
		default:
		}
		over := r.Waits(stage.what(r.Pod.Namespace))
		select {
		case <-stage.reached:
		case <-pl.done:
		case <-ctx.Done():
		}
		over()
	}
}

// rate says how many pulls begin in a second.
func (p *Puller) rate(string) string {
	return fmt.Sprintf("no more than %g pulls begin in a second, after %d at once (registryPullQPS, registryBurst)", p.cfg.QPS, max(1, p.cfg.Burst))
}

func (p *Puller) run(ctx context.Context, key string, pl *pull) {
	defer pl.cancel()
	pl.result = p.inTurn(ctx, pl)
	p.mu.Lock()
	if p.pulls[key] == pl {
		delete(p.pulls, key)
	}
	p.mu.Unlock()
	close(pl.done)
}

// inTurn pulls within the bounds on pulls at once and per second. Above the
// rate a pull waits for its turn; the kubelet fails it, and it waits longer.
func (p *Puller) inTurn(ctx context.Context, pl *pull) result {
	yield, end, err := p.turns.take(ctx, pl.turn)
	if err != nil {
		return result{err: err}
	}
	defer end()
	close(pl.placed)
	// Of a namespace that has pulls beside those with a place it is sooner.
	slow := time.AfterFunc(max(slowPull/time.Duration(1+pl.turn.beside), leastSlow), yield)
	defer slow.Stop()
	if p.limiter != nil {
		if err := p.limiter.Wait(ctx); err != nil {
			return result{err: fmt.Errorf("pull QPS exceeded: %w", err)}
		}
	}
	pl.beganAt = time.Now()
	close(pl.begun)
	if p.deps.Records == nil {
		res, _ := p.try(ctx, pl)
		return res
	}
	return p.recorded(ctx, pl)
}

// recorded pulls with a note before and after, so that nobody uses an image
// with credentials that did not pull it.
func (p *Puller) recorded(ctx context.Context, pl *pull) result {
	name := pl.name
	log := klog.FromContext(ctx)
	if err := p.deps.Records.Begin(name); err != nil {
		return result{err: err}
	}
	res, by := p.try(ctx, pl)
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
func (p *Puller) try(ctx context.Context, pl *pull) (result, *credential) {
	began, spec, creds := time.Now(), pl.request.spec(pl.name), pl.creds
	if len(creds) == 0 {
		creds = []credential{{}}
	}
	var errs []error
	for i := range creds {
		ref, err := p.deps.Client.PullImage(ctx, spec, creds[i].auth, pl.request.Sandbox)
		if err == nil {
			res := result{ref: ref, took: time.Since(began)}
			if img, err := p.deps.Client.ImageFor(ctx, spec); err == nil && img != nil {
				res.ref, res.size = img.GetId(), img.GetSize()
			}
			p.metrics.pulled(res)
			return res, &creds[i]
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return result{err: failure(errs)}, nil
}
