// Package serviceaccount keeps service-account tokens for pods: it requests them from
// the apiserver, bound to the pod, and renews them before they expire.
//
// It owns the tokens in memory and must never write one to disk or to a log.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
)

const (
	defaultLife    = int64(3600)
	defaultTimeout = 10 * time.Second
	// maxAge is when a token is renewed however long it lives.
	maxAge = 24 * time.Hour
	// maxJitter spreads renewals that would fall together.
	maxJitter = 10 * time.Second
	// retryAfter is how soon a failed renewal of a still valid token is tried again for
	// the first time, and retryMost how late at most.
	retryAfter = 10 * time.Second
	retryMost  = 3 * time.Minute
	// mostOfPod is how many tokens a pod may have: a few words of its spec name one,
	// and each is held, and asked for again as long as the pod is there.
	mostOfPod = 256
)

// Requester asks the apiserver for a token.
type Requester interface {
	CreateToken(ctx context.Context, namespace, serviceAccount string, req *authv1.TokenRequest) (*authv1.TokenRequest, error)
}

// FromClient is the Requester of a client; nil for a nil client.
func FromClient(client kubernetes.Interface) Requester {
	if client == nil {
		return nil
	}
	return requester{client}
}

type requester struct{ client kubernetes.Interface }

func (r requester) CreateToken(ctx context.Context, namespace, serviceAccount string, req *authv1.TokenRequest) (*authv1.TokenRequest, error) {
	return r.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, req, metav1.CreateOptions{})
}

// Request says which token.
type Request struct {
	Namespace      string
	ServiceAccount string
	// Audience is empty for the apiserver's own.
	Audience string
	// ExpirationSeconds asked for; zero means an hour.
	ExpirationSeconds int64
	PodName           string
	PodUID            types.UID
}

// Token is a token with its times.
type Token struct {
	Value string
	// Expires by the node's clock, and Refresh is when to ask Get again for a fresh
	// one; see Due.
	Expires time.Time
	Refresh time.Time
}

// Config of a Cache.
type Config struct {
	// RequestTimeout of one request; zero means 10 s.
	RequestTimeout time.Duration
}

// Deps are what a Cache needs.
type Deps struct {
	// Requester is nil in standalone mode; Get then fails with a clear error.
	Requester Requester
}

// Cache holds the tokens; safe for concurrent use.
type Cache struct {
	cfg       Config
	requester Requester

	asking namespacelimit.Pool

	mu     sync.Mutex
	tokens map[types.UID]map[Request]*slot // by the pod's UID
}

// slot is one token; turn lets one request for it out at a time.
type slot struct {
	turn    chan struct{}
	token   Token            // guarded by Cache.mu
	failing *backoff.Backoff // whose turn it is has it; nil unless renewals fail
}

// New makes a Cache; it starts nothing.
func New(cfg Config, deps Deps) *Cache {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = defaultTimeout
	}
	return &Cache{cfg: cfg, requester: deps.Requester, tokens: map[types.UID]map[Request]*slot{}}
}

// ErrStandalone says that there is no apiserver that could give tokens.
var ErrStandalone = errors.New("no service-account token can be had: the node runs standalone, without an apiserver; set automountServiceAccountToken: false or remove the serviceAccountToken source")

// ErrTooMany says that a pod names more tokens than it may.
var ErrTooMany = fmt.Errorf("the pod names more than %d different service-account tokens; name fewer audiences and expiration times", mostOfPod)

// Get returns a valid token, a fresh one when the kept one is due. While renewals
// fail the kept token is returned as long as it is valid; the first that fails is
// logged, and the end of it.
func (c *Cache) Get(ctx context.Context, r Request) (Token, error) {
	if c.requester == nil {
		return Token{}, ErrStandalone
	}
	if r.ExpirationSeconds <= 0 {
		r.ExpirationSeconds = defaultLife
	}
	if r.ServiceAccount == "" {
		r.ServiceAccount = "default"
	}
	s, ok := c.slot(r)
	if !ok {
		return Token{}, ErrTooMany
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Token{}, fmt.Errorf("get a token of service account %s/%s: %w", r.Namespace, r.ServiceAccount, context.Cause(ctx))
	}
	if kept := c.kept(s); kept.Value != "" && !Due(time.Now(), kept.Refresh) {
		return kept, nil
	}
	return c.renew(ctx, r, s)
}

// renew asks for a token in place of the one that is kept, or gives that while it is
// valid. Who calls it has the slot's turn.
func (c *Cache) renew(ctx context.Context, r Request, s *slot) (Token, error) {
	kept, now := c.kept(s), time.Now()
	fresh, err := c.request(ctx, r)
	if err == nil {
		if s.failing != nil {
			s.failing = nil
			klog.FromContext(ctx).Info("A service-account token is renewed after all",
				"pod", klog.KRef(r.Namespace, r.PodName), "serviceAccount", r.ServiceAccount)
		}
		c.keep(r, s, fresh)
		return fresh, nil
	}
	if kept.Value != "" && !Due(now, kept.Expires) {
		if s.failing == nil {
			s.failing = backoff.New(backoff.Config{Initial: retryAfter, Max: retryMost, Jitter: 0.2})
			klog.FromContext(ctx).Info("Renewing a service-account token failed, the old one stays in use and it is tried again by itself",
				"pod", klog.KRef(r.Namespace, r.PodName), "serviceAccount", r.ServiceAccount, "expires", kept.Expires, "err", err)
		}
		kept.Refresh = now.Add(retryIn(s.failing.Next(), kept.Expires.Sub(now)))
		c.keep(r, s, kept)
		return kept, nil
	}
	return Token{}, err
}

// retryIn is when a renewal is tried again: the nearer a token's end, the sooner.
func retryIn(delay, left time.Duration) time.Duration {
	return min(delay, max(left/2, retryAfter))
}

// Forget drops a pod's tokens.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tokens, uid)
}

// slot is a token's place; false when the pod has too many.
func (c *Cache) slot(r Request) (*slot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.tokens[r.PodUID]
	if s := all[r]; s != nil {
		return s, true
	}
	if len(all) >= mostOfPod {
		return nil, false
	}
	if all == nil {
		all = map[Request]*slot{}
		c.tokens[r.PodUID] = all
	}
	s := &slot{turn: make(chan struct{}, 1)}
	all[r] = s
	return s, true
}

func (c *Cache) kept(s *slot) Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.token
}

// keep stores a token unless the pod was forgotten meanwhile.
func (c *Cache) keep(r Request, s *slot, t Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens[r.PodUID][r] == s {
		s.token = t
	}
}

// request asks for a token bound to the pod.
func (c *Cache) request(ctx context.Context, r Request) (Token, error) {
	release, err := c.asking.Acquire(ctx, r.Namespace)
	if err != nil {
		return Token{}, fmt.Errorf("failed to fetch token: many of namespace %s are asked for: %w", r.Namespace, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	now := time.Now()
	req := &authv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{Name: r.ServiceAccount, Namespace: r.Namespace},
		Spec: authv1.TokenRequestSpec{
			ExpirationSeconds: &r.ExpirationSeconds,
			BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.PodName, UID: r.PodUID},
		},
	}
	if r.Audience != "" {
		req.Spec.Audiences = []string{r.Audience}
	}
	answer, err := c.requester.CreateToken(ctx, r.Namespace, r.ServiceAccount, req)
	if err != nil {
		return Token{}, fmt.Errorf("failed to fetch token: %w", err)
	}
	if answer.Status.Token == "" {
		return Token{}, fmt.Errorf("failed to fetch token: the apiserver's answer for service account %s/%s holds none", r.Namespace, r.ServiceAccount)
	}
	// How long it lives does not depend on how right the node's clock is.
	expires := answer.Status.ExpirationTimestamp.Time
	if granted := answer.Spec.ExpirationSeconds; granted != nil && *granted > 0 {
		expires = now.Add(time.Duration(*granted) * time.Second)
	}
	return Token{Value: answer.Status.Token, Expires: expires, Refresh: refreshAt(now, expires, rand.Float64())}, nil
}

// Due says whether a time has come: by the time that has passed, though the wall
// clock was set back, or by the wall clock, though the machine slept, while which
// no time passes for its processes.
func Due(now, at time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// refreshAt is when four fifths of a token's life are over, or a day, a little
// earlier by spread (0..1) so that tokens made together are not renewed together.
func refreshAt(now, expires time.Time, spread float64) time.Time {
	life := expires.Sub(now)
	wait := min(life*4/5, maxAge)
	jitter := min(maxJitter, life/10)
	return now.Add(wait - time.Duration(spread*float64(jitter)))
}
