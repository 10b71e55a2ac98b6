package access

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

func FuzzWhatRunsSomethingNeedsCreateAndEveryPathNeedsSomething(f *testing.F) {
	for _, seed := range []string{"/", "/exec/a/b/c", "//exec/a/b/c", "/exec", "/execute", "/pods/../exec/a/b/c", "/Exec/a", "/logs/%2e%2e/exec", "/stats\x00/exec", "/run/", ""} {
		f.Add("GET", seed)
	}
	f.Add("POST", "/attach/a/b/c")
	f.Add("BREW", "/portForward/a/b")
	f.Fuzz(func(t *testing.T, method, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL.Path = method, path
		sets, subs := Attributes{NodeName: "n"}.For(&user.DefaultInfo{Name: "u"}, r)
		if len(sets) == 0 || len(sets) != len(subs) {
			t.Fatalf("%d sets, subresources %v", len(sets), subs)
		}
		first := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)[0]
		runs := strings.HasPrefix(path, "/") && slices.Contains([]string{"exec", "attach", "run", "portForward"}, first)
		for _, s := range sets {
			if runs && (s.GetVerb() != "create" || s.GetSubresource() != "proxy") {
				t.Fatalf("%s %q needs %s on %s only", method, path, s.GetVerb(), s.GetSubresource())
			}
			if s.GetName() != "n" || s.GetResource() != "nodes" || s.GetSubresource() == "" || s.GetNamespace() != "" || !s.IsResourceRequest() {
				t.Fatalf("%+v", s)
			}
		}
	})
}
