package route

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPathsFindTheirHandlers(t *testing.T) {
	show := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name, Param(r, "a"), Param(r, "b"))
		})
	}
	table := &Table{}
	table.Add(
		Route{Pattern: "/pods", Methods: []string{"GET"}, Handler: show("pods")},
		Route{Pattern: "/any", Handler: show("any")},
		Route{Pattern: "/running/", Methods: []string{"GET"}, Handler: show("running")},
		Route{Pattern: "/x/{a}/{b}", Methods: []string{"GET", "POST"}, Handler: show("x")},
		Route{Pattern: "/x//*", Methods: []string{"GET"}, Handler: show("missing")},
		Route{Pattern: "/debug/*", Handler: show("debug")},
	)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/pods", 200, "pods"},
		{"POST", "/pods", 405, "405: Method Not Allowed"},
		{"GET", "/pods/", 404, "404: Page Not Found"},
		{"GET", "/podsx", 404, "404: Page Not Found"},
		{"DELETE", "/any", 200, "any"},
		{"GET", "/running/", 200, "running"},
		{"GET", "/running", 404, "404: Page Not Found"},
		{"GET", "/x/1/2", 200, "x12"},
		{"POST", "/x/1/2", 200, "x12"},
		{"PUT", "/x/1/2", 405, "405: Method Not Allowed"},
		{"GET", "/x/1", 404, "404: Page Not Found"},
		{"GET", "/x/1/2/3", 404, "404: Page Not Found"},
		{"GET", "/x//2", 200, "missing"},
		{"GET", "/x//", 200, "missing"},
		{"GET", "/debug/", 200, "debug"},
		{"GET", "/debug/pprof/heap", 200, "debug"},
		{"GET", "/debug", 404, "404: Page Not Found"},
		{"GET", "/", 404, "404: Page Not Found"},
	} {
		w := httptest.NewRecorder()
		table.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status, c.body)
		}
	}
}

func TestAPathOfAMegabyteOfSlashesTakesNoMemory(t *testing.T) {
	table := &Table{}
	table.Add(Route{Pattern: "/x/{a}/{b}", Slash: true}, Route{Pattern: "/debug/*"})
	r := httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("/", 1<<20), nil)
	got := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			table.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
	if n := got.AllocedBytesPerOp(); n > 64<<10 {
		t.Errorf("%d bytes are taken to find out that nobody serves it", n)
	}
}
