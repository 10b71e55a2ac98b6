package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

// errTooMany refuses a review for want of a place. It is never kept.
var errTooMany = errors.New("too many requests are being authenticated and authorised; try again")

// Begin is asked before a question goes out to the apiserver for a request of
// an address (host:port), and returns what ends it, or nil when there are too
// many. known says that it is certain who asks. Answers that are kept, and
// certificates, need no question and no place.
type Begin func(address string, known bool) (end func())

type addressKey struct{}

// withAddress notes whose request a context is of.
func withAddress(r *http.Request) context.Context {
	return context.WithValue(r.Context(), addressKey{}, r.RemoteAddr)
}

func addressOf(ctx context.Context) string {
	address, _ := ctx.Value(addressKey{}).(string)
	return address
}

// placed gives each question about somebody's access its place; those about
// tokens have theirs from askers. Equal questions at the same time are one.
type placed struct {
	Reviewer
	begin Begin
	group singleflight.Group
	// refused is told of tokens that are nobody's.
	refused *refusedTokens
}

// ReviewToken implements Reviewer.
func (p *placed) ReviewToken(ctx context.Context, question *authnv1.TokenReview) (*authnv1.TokenReview, *metav1.Status, error) {
	answer, refusal, err := p.Reviewer.ReviewToken(ctx, question)
	if err == nil && refusal == nil && answer != nil && !answer.Status.Authenticated {
		p.refused.note(question.Spec.Token, answer.Status.Error)
	}
	return answer, refusal, err
}

// verdict is what a question about access gave.
type verdict struct {
	answer  *authzv1.SubjectAccessReview
	refusal *metav1.Status
}

// ReviewAccess implements Reviewer.
func (p *placed) ReviewAccess(ctx context.Context, question *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, *metav1.Status, error) {
	key, err := question.Spec.Marshal()
	if err != nil {
		return nil, nil, fmt.Errorf("encoding what a SubjectAccessReview asks: %w", err)
	}
	done := p.group.DoChan(string(key), func() (any, error) {
		end := p.begin(addressOf(ctx), question.Spec.User != user.Anonymous)
		if end == nil {
			return nil, errTooMany
		}
		defer end()
		// Others may wait for it when the first who asked has left.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		answer, refusal, err := p.Reviewer.ReviewAccess(ctx, question)
		return verdict{answer, refusal}, err
	})
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case result := <-done:
		said, _ := result.Val.(verdict)
		return said.answer.DeepCopy(), said.refusal.DeepCopy(), result.Err
	}
}

var _ Reviewer = (*placed)(nil)

// askers know which address shows a token. The library's cache forgets whose
// request it asks for, as several may wait for one answer: the place is then the
// first one's.
type askers struct {
	begin    Begin
	trusted  func(context.Context) bool
	familiar *Familiar
	good     goodTokens
	refusals refusals
	refused  *refusedTokens

	mu        sync.Mutex
	byToken   map[string]*asker
	waiting   int
	waitingOf map[string]int // of those, by their addresses, and by their connections (host:port)
}

// mostWaiting is how many requests may wait for what their tokens are, in all:
// those with equal tokens take one place, but each its own memory. A few of each
// address may always, and one of each connection, which are bounded: many may have one
// address. Tokens that were good before are not counted, nor are those of
// who has standing, or unknown clients who wait would keep them out.
const mostWaiting, fewWaiting = 512, 4

type asker struct {
	address string
	who     standing
	waiting int
}

func newAskers(cfg Config, refused *refusedTokens) *askers {
	trusted := cfg.Trusted
	if trusted == nil {
		trusted = func(context.Context) bool { return false }
	}
	return &askers{
		begin: cfg.Begin, trusted: trusted, familiar: cfg.Familiar, refused: refused,
		byToken: map[string]*asker{}, waitingOf: map[string]int{},
	}
}

// who says what is known of a request's caller.
func (a *askers) who(ctx context.Context) standing {
	switch {
	case a.trusted(ctx):
		return trusted
	case a.familiar.has(addressOf(ctx)):
		return familiar
	}
	return unknown
}

// around is what asks the cache: it notes who does.
func (a *askers) around(cache authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		leave, ok := a.enter(addressOf(ctx), a.who(ctx), token)
		if !ok {
			return nil, false, errTooMany
		}
		defer leave()
		return cache.AuthenticateToken(ctx, token)
	})
}

// enter counts a request that waits for what its token is.
func (a *askers) enter(address string, who standing, token string) (leave func(), ok bool) {
	counted, host := who == unknown && !a.good.has(token), inflight.HostOf(address)
	a.mu.Lock()
	defer a.mu.Unlock()
	if counted {
		if a.waiting >= mostWaiting && a.waitingOf[host] >= fewWaiting && a.waitingOf[address] > 0 {
			return nil, false
		}
		a.waiting++
		a.waitingOf[host]++
		a.waitingOf[address]++
	}
	one := a.byToken[token]
	if one == nil {
		one = &asker{address: address}
		a.byToken[token] = one
	}
	if one.waiting++; who > one.who {
		one.address, one.who = address, who
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if counted {
			a.waiting--
			for _, name := range []string{host, address} {
				if a.waitingOf[name]--; a.waitingOf[name] == 0 {
					delete(a.waitingOf, name)
				}
			}
		}
		if one.waiting--; one.waiting == 0 {
			delete(a.byToken, token)
		}
	}, true
}

// asks is whose question one about a token is.
func (a *askers) asks(token string) (address string, who standing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.byToken[token]; one != nil {
		return one.address, one.who
	}
	return "", unknown
}

// within is what the cache asks: each question has its place, one about a token
// that was good before, or of who has standing, among those of callers who are known.
func (a *askers) within(review authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		address, who := a.asks(token)
		if a.refused.has(token) {
			return nil, false, errRefused
		}
		good, giveBack := a.good.has(token), func() {}
		if !good {
			var few bool
			if giveBack, few = a.refusals.ask(ctx, address, who); !few {
				return nil, false, errTooMany
			}
		}
		end := a.begin(address, good || who != unknown)
		if end == nil {
			giveBack() // nothing was asked
			return nil, false, errTooMany
		}
		defer end()
		answer, ok, err := review.AuthenticateToken(ctx, token)
		if err == nil || a.refused.has(token) {
			a.good.note(token, ok) // else it would be asked about without end when it has expired
		}
		if ok && err == nil {
			giveBack()
		}
		return answer, ok, err
	})
}

// goodTokens remembers which tokens the apiserver said are somebody's, by their
// hashes. It lets nobody in: whose a token is, is asked or kept elsewhere. The
// zero value is ready.
type goodTokens struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]time.Time // when it was said last
}

const (
	// mostGood bounds them. Few ask a node by token: what scrapes it, and people.
	mostGood = 1024
	// goodFor is how long one counts that is not refused meanwhile.
	goodFor = time.Hour
)

func (g *goodTokens) has(token string) bool {
	hash := sha256.Sum256([]byte(token))
	g.mu.Lock()
	defer g.mu.Unlock()
	said, ok := g.of[hash]
	return ok && time.Since(said) < goodFor
}

// note takes any other out for the next when there are too many.
func (g *goodTokens) note(token string, good bool) {
	hash := sha256.Sum256([]byte(token))
	g.mu.Lock()
	defer g.mu.Unlock()
	if !good {
		delete(g.of, hash)
		return
	}
	if g.of == nil {
		g.of = map[[sha256.Size]byte]time.Time{}
	}
	for other := range g.of {
		if len(g.of) < mostGood {
			break
		}
		delete(g.of, other)
	}
	g.of[hash] = time.Now()
}
