package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
)

func TestWhomEverybodyMayBeStaysAStranger(t *testing.T) {
	for name, known := range map[string]bool{"scraper": true, user.Anonymous: false} {
		admitted, familiar := 0, &Familiar{}
		f := Filter{
			Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
			}),
			Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), Familiar: familiar,
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
