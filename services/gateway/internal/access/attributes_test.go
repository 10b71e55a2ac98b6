package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestEachPathNeedsItsSubresources(t *testing.T) {
	for path, want := range map[string]string{
		"/stats/summary": "stats", "/stats": "stats", "/metrics": "metrics", "/metrics/cadvisor": "metrics",
		"/logs/": "log", "/checkpoint/a/b/c": "checkpoint", "/statusz": "statusz", "/flagz": "configz",
		"/pods": "pods proxy", "/pods/": "pods proxy", "/runningpods/": "pods proxy", "/healthz": "healthz proxy",
		"/healthz/ping": "healthz proxy", "/configz": "configz proxy", "/spec": "stats proxy",
		"/podsx": "proxy", "/Pods": "proxy", "/metricsx": "proxy", "/exec/a/b/c": "proxy", "/run/a/b/c": "proxy",
		"/attach/a/b/c": "proxy", "/portForward/a/b": "proxy", "/containerLogs/a/b/c": "proxy",
		"/debug/pprof/": "proxy", "/": "proxy", "/nothing": "proxy", "/statsx/summary": "proxy",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		sets, subs := Attributes{NodeName: "n1"}.For(&user.DefaultInfo{Name: "u"}, r)
		if got := strings.Join(subs, " "); got != want {
			t.Errorf("%s needs %q, want %q", path, got, want)
		}
		for i, a := range sets {
			if a.GetSubresource() != subs[i] || a.GetResource() != "nodes" || a.GetName() != "n1" || a.GetAPIVersion() != "v1" ||
				a.GetAPIGroup() != "" || a.GetNamespace() != "" || !a.IsResourceRequest() || a.GetPath() != path {
				t.Errorf("%s: attributes %+v", path, a)
			}
		}
	}
}

func TestTheVerbComesFromTheMethodExceptWhereSomethingRuns(t *testing.T) {
	for _, c := range []struct {
		path, method string
		compatible   bool
		want         string
	}{
		{"/pods", http.MethodGet, false, "get"},
		{"/stats/summary", http.MethodPost, false, "create"},
		{"/metrics", http.MethodPut, false, "update"},
		{"/metrics", http.MethodPatch, false, "patch"},
		{"/metrics/slis", http.MethodDelete, false, "delete"},
		{"/metrics", http.MethodHead, false, ""},
		{"/metrics", http.MethodOptions, false, ""},
		{"/containerLogs/a/b/c", http.MethodGet, false, "get"},
		{"/exec/a/b/c", http.MethodGet, false, "create"},
		{"/exec/a/b/c", http.MethodPost, false, "create"},
		{"/attach/a/b/c", http.MethodGet, false, "create"},
		{"/portForward/a/b", http.MethodGet, false, "create"},
		{"/run/a/b/c", http.MethodHead, false, "create"},
		{"/runningpods/", http.MethodGet, false, "get"},
		{"/execute", http.MethodGet, false, "get"},
		{"/exec/a/b/c", http.MethodGet, true, "get"},
		{"/portForward/a/b", http.MethodGet, true, "get"},
		{"/attach/a/b/c", http.MethodPost, true, "create"},
	} {
		a := Attributes{CompatibleStreamVerbs: c.compatible}
		sets, _ := a.For(&user.DefaultInfo{}, httptest.NewRequest(c.method, c.path, nil))
		for _, set := range sets {
			if set.GetVerb() != c.want {
				t.Errorf("%s %s (compatible %v): verb %q, want %q", c.method, c.path, c.compatible, set.GetVerb(), c.want)
			}
		}
	}
}

// rules allow "user verb subresource".
func filter(rules ...string) Filter {
	return Filter{
		Attributes: Attributes{NodeName: "n1"},
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			switch name := r.Header.Get("Authorization"); name {
			case "":
				return nil, false, nil
			case "bad":
				return nil, false, errors.New("token is not known")
			default:
				return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
			}
		}),
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "broken" {
				return authorizer.DecisionNoOpinion, "", errors.New("apiserver is away")
			}
			for _, rule := range rules {
				if rule == fmt.Sprintf("%s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetSubresource()) {
					return authorizer.DecisionAllow, "", nil
				}
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	f := filter("metrics get metrics", "fine get pods", "old get proxy", "reader get proxy", "admin get proxy", "admin create proxy")
	for _, c := range []struct {
		who, method, path string
		status            int
		body              string
	}{
		{"", "GET", "/pods", 401, "Unauthorized"},
		{"bad", "GET", "/healthz", 401, "Unauthorized"},
		{"", "GET", "/nothing", 401, "Unauthorized"},
		{"metrics", "GET", "/metrics", 200, "served"},
		{"metrics", "GET", "/metrics/cadvisor", 200, "served"},
		{"metrics", "POST", "/metrics", 403, "Forbidden (user=metrics, verb=create, resource=nodes, subresource(s)=[metrics])\n"},
		{"metrics", "GET", "/pods", 403, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"metrics", "GET", "/nothing", 403, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[proxy])\n"},
		{"fine", "GET", "/pods", 200, "served"},
		{"fine", "GET", "/runningpods/", 200, "served"},
		{"fine", "GET", "/exec/a/b/c", 403, "Forbidden (user=fine, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"old", "GET", "/pods", 200, "served"},
		{"old", "GET", "/configz", 200, "served"},
		{"old", "GET", "/metrics", 403, "Forbidden (user=old, verb=get, resource=nodes, subresource(s)=[metrics])\n"},
		{"reader", "GET", "/containerLogs/a/b/c", 200, "served"},
		{"reader", "GET", "/exec/a/b/c", 403, "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"admin", "GET", "/exec/a/b/c", 200, "served"},
		{"admin", "POST", "/run/a/b/c", 200, "served"},
		{"broken", "GET", "/metrics", 500, "Authorization error (user=broken, verb=get, resource=nodes, subresource=metrics)"},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.who != "" {
			r.Header.Set("Authorization", c.who)
		}
		w := httptest.NewRecorder()
		f.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s %s: the caller's secret is passed on", c.method, c.path)
			}
			fmt.Fprint(w, "served")
		})).ServeHTTP(w, r)
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s %s by %q: %d %q, want %d %q", c.method, c.path, c.who, w.Code, w.Body, c.status, c.body)
		}
	}
}

func TestWithoutAnAPIServerNobodyPassesUnlessConfigured(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		status int
	}{
		{"defaults", Config{WebhookAuthentication: true}, 401},
		{"anonymous under Webhook", Config{Anonymous: true}, 500},
		{"anonymous under AlwaysAllow", Config{Anonymous: true, AlwaysAllow: true}, 200},
		{"AlwaysAllow alone", Config{AlwaysAllow: true}, 401},
	} {
		authn, authz := New(c.cfg, nil, nil)
		w := httptest.NewRecorder()
		Filter{Authenticator: authn, Authorizer: authz}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
			ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
		if w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.status)
		}
	}
}
