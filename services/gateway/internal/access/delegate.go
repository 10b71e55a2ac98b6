package access

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Config is what an operator can choose.
type Config struct {
	// Anonymous lets requests without credentials be system:anonymous.
	Anonymous bool
	// WebhookAuthentication asks the apiserver about bearer tokens.
	WebhookAuthentication bool
	// TokenTTL is how long an answer about a token is kept.
	TokenTTL time.Duration
	// AlwaysAllow authorises everybody who is authenticated; otherwise the
	// apiserver is asked.
	AlwaysAllow bool
	// AllowTTL and DenyTTL are how long its answers are kept.
	AllowTTL, DenyTTL time.Duration
	// Begin bounds the questions under way; nil allows any number.
	Begin Begin
	// Trusted says whether the connection of a request's context is of somebody who was
	// let in; nil says so of none. Familiar are the addresses of such; nil knows none.
	// New tokens from there do not wait for what unknown clients ask.
	Trusted  func(ctx context.Context) bool
	Familiar *Familiar
	// Runs counts the runs of who asks the apiserver: what one was told is not kept for the
	// next, which may ask another cluster's. Nil: it has one.
	Runs func() uint64
	// Metrics counts the questions; nil counts none.
	Metrics *Metrics
}

// tokenTimeout bounds a TokenReview with all its tries.
const tokenTimeout = 10 * time.Second

// New builds authenticator and authorizer. reviewer may be nil (standalone):
// then tokens are not known, and without AlwaysAllow nobody is authorised. ca
// may be nil: then client certificates are not known.
func New(cfg Config, reviewer Reviewer, ca CA) (authenticator.Request, authorizer.Authorizer) {
	if cfg.Begin == nil {
		cfg.Begin = func(string, bool) func() { return func() {} }
	}
	refused := &refusedTokens{}
	if reviewer != nil {
		reviewer = &placed{Reviewer: reviewer, begin: cfg.Begin, refused: refused}
	}
	return newAuthenticator(cfg, reviewer, ca, refused), newAuthorizer(cfg, reviewer, trustOf(cfg, ca))
}

func newAuthenticator(cfg Config, reviewer Reviewer, ca CA, refused *refusedTokens) authenticator.Request {
	tokens := cfg.WebhookAuthentication && reviewer != nil
	if !tokens && ca == nil && !cfg.Anonymous {
		return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, errors.New("no way to authenticate is configured: set authentication.x509.clientCAFile, " +
				"or run with --kubeconfig and authentication.webhook.enabled")
		})
	}
	// In the order of the kubelet, with a place for each question between the cache
	// and what it asks.
	var parts []authenticator.Request
	if ca != nil {
		parts = append(parts, byCertificate(ca))
	}
	if tokens {
		token := newTokens(cfg, reviewer, refused, trustOf(cfg, ca))
		parts = append(parts, bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
	}
	nobody := anonymous.NewAuthenticator(nil)
	if len(parts) == 0 {
		return nobody
	}
	authn := group.NewAuthenticatedGroupAdder(union.New(parts...))
	if cfg.Anonymous {
		authn = union.NewFailOnError(authn, nobody)
	}
	return authn
}

// newTokens asks about bearer tokens, and keeps the answers.
func newTokens(cfg Config, reviewer Reviewer, refused *refusedTokens, now trust) authenticator.Token {
	who := newAskers(cfg, refused)
	review := tokenReviews{reviewer: reviewer, count: cfg.Metrics.ofTokens()}
	return who.around(underTrust(now, func() authenticator.Token {
		return tokencache.New(who.within(review), false, cfg.TokenTTL, cfg.TokenTTL)
	}))
}

func newAuthorizer(cfg Config, reviewer Reviewer, now trust) authorizer.Authorizer {
	if cfg.AlwaysAllow {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	}
	if reviewer == nil {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", errors.New("authorization.mode is Webhook and there is no apiserver to ask " +
				"(standalone): set authorization.mode AlwaysAllow, or run with --kubeconfig")
		})
	}
	return &accessReviews{
		reviewer: reviewer, count: cfg.Metrics.ofAccesses(), allowTTL: cfg.AllowTTL, denyTTL: cfg.DenyTTL,
		answers: cache.NewLRUExpireCache(mostKept), trust: now,
	}
}
