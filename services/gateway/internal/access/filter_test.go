package access

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestWhomEverybodyMayBeStaysUnknown(t *testing.T) {
	for name, known := range map[string]bool{"scraper": true, user.Anonymous: false} {
		admitted, familiar := 0, &Familiar{}
		f := Filter{
			Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
			}),
			Authorizer: always(authorizer.DecisionAllow), Familiar: familiar,
			Admitted: func(context.Context) { admitted++ },
		}
		served := false
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
		f.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(httptest.NewRecorder(), r)
		if !served || (admitted == 1) != known || familiar.has(r.RemoteAddr) != known {
			t.Errorf("%s: served %v, admitted %d times, familiar %v", name, served, admitted, familiar.has(r.RemoteAddr))
		}
	}
}

func TestOfALongPathThatIsRefusedLittleIsLogged(t *testing.T) {
	for name, authn := range map[string]authenticator.RequestFunc{
		"nobody": func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, errors.New("no") },
		"somebody": func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "eve"}}, true, nil
		},
	} {
		logged := 0
		log := funcr.New(func(prefix, args string) { logged += len(prefix) + len(args) }, funcr.Options{Verbosity: 2})
		f := Filter{Authenticator: authn, Authorizer: always(authorizer.DecisionNoOpinion)}
		r := httptest.NewRequestWithContext(logr.NewContext(t.Context(), log), http.MethodGet, "/"+strings.Repeat("x", 60<<10), nil)
		f.Wrap(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		if logged == 0 || logged > 1<<10 {
			t.Errorf("%s: %d bytes are logged of one request", name, logged)
		}
	}
}

// always decides the same of everybody.
func always(decision authorizer.Decision) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return decision, "", nil
	})
}
