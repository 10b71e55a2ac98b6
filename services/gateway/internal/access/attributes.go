// Package access decides who may do what on the secure port: it knows which
// attributes of the node a request needs, and asks authenticators and
// authorizers. It must never route, and never let a request pass when it does
// not know.
package access

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Attributes tells what a request needs; the first set that is allowed suffices.
// Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ and KEP-2862.
type Attributes struct {
	// NodeName is the name of the node resource.
	NodeName string
	// CompatibleStreamVerbs takes the verb of exec, attach, run and
	// port-forward from the HTTP method, as the kubelet does: a WebSocket's GET
	// then needs "get" only, and a role that may read runs commands.
	CompatibleStreamVerbs bool
}

// For returns the attribute sets of a request by u, and their subresources.
func (a Attributes) For(u user.Info, r *http.Request) (sets []authorizer.Attributes, subresources []string) {
	subresources = subresourcesOf(r.URL.Path)
	verb := verbOf(r.Method)
	if !a.CompatibleStreamVerbs && runsSomething(r.URL.Path) {
		verb = "create"
	}
	for _, sub := range subresources {
		sets = append(sets, authorizer.AttributesRecord{
			User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: sub,
			Name: a.NodeName, ResourceRequest: true, Path: r.URL.Path,
		})
	}
	return sets, subresources
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

func subresourcesOf(path string) []string {
	for _, row := range [...]struct {
		prefix string
		subs   []string
	}{
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/statusz", []string{"statusz"}},
		{"/flagz", []string{"configz"}},
		{"/pods", []string{"pods", "proxy"}},
		{"/runningpods", []string{"pods", "proxy"}},
		{"/healthz", []string{"healthz", "proxy"}},
		{"/configz", []string{"configz", "proxy"}},
		// Ours: the machine document reveals no more than /stats does.
		{"/spec", []string{"stats", "proxy"}},
	} {
		if under(path, row.prefix) {
			return row.subs
		}
	}
	return []string{"proxy"}
}

func runsSomething(path string) bool {
	for _, prefix := range [...]string{"/exec", "/attach", "/run", "/portForward"} {
		if under(path, prefix) {
			return true
		}
	}
	return false
}

// under reports whether path is prefix or lies below it, by whole segments.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}
