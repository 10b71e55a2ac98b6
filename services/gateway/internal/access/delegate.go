package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
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
}

// webhookBackoff is the apiserver library's default: five tries within 3 s.
func webhookBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// New builds authenticator and authorizer. client may be nil (standalone):
// then tokens are not known, and without AlwaysAllow nobody is authorised. ca
// may be nil: then client certificates are not known.
func New(cfg Config, client kubernetes.Interface, ca dynamiccertificates.CAContentProvider) (authenticator.Request, authorizer.Authorizer, error) {
	authn, err := newAuthenticator(cfg, client, ca)
	if err != nil {
		return nil, nil, err
	}
	authz, err := newAuthorizer(cfg, client)
	return authn, authz, err
}

func newAuthenticator(cfg Config, client kubernetes.Interface, ca dynamiccertificates.CAContentProvider) (authenticator.Request, error) {
	webhook := cfg.WebhookAuthentication && client != nil
	if !webhook && ca == nil && !cfg.Anonymous {
		return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, errors.New("no way to authenticate is configured: set authentication.x509.clientCAFile, " +
				"or run with --kubeconfig and authentication.webhook.enabled")
		}), nil
	}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: cfg.Anonymous},
		CacheTTL:                           cfg.TokenTTL,
		ClientCertificateCAContentProvider: ca,
	}
	if webhook {
		delegating.TokenAccessReviewClient = client.AuthenticationV1()
		delegating.TokenAccessReviewTimeout = 10 * time.Second
		delegating.WebhookRetryBackoff = webhookBackoff()
	}
	authn, _, err := delegating.New()
	if err != nil {
		return nil, fmt.Errorf("building the authenticator of the secure port: %w", err)
	}
	return authn, nil
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
