package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
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
	// New tokens from there do not wait for what strangers ask.
	Trusted  func(ctx context.Context) bool
	Familiar *Familiar
}

// tokenTimeout bounds a TokenReview with all its tries.
const tokenTimeout = 10 * time.Second

// webhookBackoff is the apiserver library's default: five tries within 3 s.
func webhookBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// New builds authenticator and authorizer. reviewer may be nil (standalone):
// then tokens are not known, and without AlwaysAllow nobody is authorised. ca
// may be nil: then client certificates are not known.
func New(cfg Config, reviewer Reviewer, ca CA) (authenticator.Request, authorizer.Authorizer, error) {
	if cfg.Begin == nil {
		cfg.Begin = func(string, bool) func() { return func() {} }
	}
	var client kubernetes.Interface
	refused := &refusedTokens{}
	if reviewer != nil {
		var err error
		if client, err = clientOf(&placed{Reviewer: reviewer, begin: cfg.Begin, refused: refused}); err != nil {
			return nil, nil, err
		}
	}
	authn, err := newAuthenticator(cfg, client, ca, refused)
	if err != nil {
		return nil, nil, err
	}
	authz, err := newAuthorizer(cfg, client)
	return authn, authz, err
}

func newAuthenticator(cfg Config, client kubernetes.Interface, ca CA, refused *refusedTokens) (authenticator.Request, error) {
	tokens := cfg.WebhookAuthentication && client != nil
	if !tokens && ca == nil && !cfg.Anonymous {
		return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, errors.New("no way to authenticate is configured: set authentication.x509.clientCAFile, " +
				"or run with --kubeconfig and authentication.webhook.enabled")
		}), nil
	}
	// As authenticatorfactory puts them together, with a place for each question
	// between the cache and what it asks.
	var parts []authenticator.Request
	if ca != nil {
		parts = append(parts, byCertificate(ca))
	}
	if tokens {
		token, err := newTokens(cfg, client, refused)
		if err != nil {
			return nil, err
		}
		parts = append(parts, bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
	}
	nobody := anonymous.NewAuthenticator(nil)
	if len(parts) == 0 {
		return nobody, nil
	}
	authn := group.NewAuthenticatedGroupAdder(union.New(parts...))
	if cfg.Anonymous {
		authn = union.NewFailOnError(authn, nobody)
	}
	return authn, nil
}

// newTokens asks about bearer tokens, and keeps the answers.
func newTokens(cfg Config, client kubernetes.Interface, refused *refusedTokens) (authenticator.Token, error) {
	review, err := webhook.NewFromInterface(client.AuthenticationV1(), nil, *webhookBackoff(), tokenTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal: authenticatorfactory.RecordRequestTotal, RecordRequestLatency: authenticatorfactory.RecordRequestLatency,
	})
	if err != nil {
		return nil, fmt.Errorf("building the authenticator of bearer tokens: %w", err)
	}
	who := newAskers(cfg, refused)
	return who.around(cache.New(who.within(review), false, cfg.TokenTTL, cfg.TokenTTL)), nil
}

func newAuthorizer(cfg Config, client kubernetes.Interface) (authorizer.Authorizer, error) {
	if cfg.AlwaysAllow {
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	}
	if client == nil {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", errors.New("authorization.mode is Webhook and there is no apiserver to ask " +
				"(standalone): set authorization.mode AlwaysAllow, or run with --kubeconfig")
		}), nil
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             cfg.AllowTTL,
		DenyCacheTTL:              cfg.DenyTTL,
		WebhookRetryBackoff:       webhookBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("building the authorizer of the secure port: %w", err)
	}
	return authz, nil
}
