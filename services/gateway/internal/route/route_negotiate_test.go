package route

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestARefusedMethodIsToldWhichAreServedAndAnUnwantedTypeIs406(t *testing.T) {
	table := &Table{}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	table.Add(
		Route{Pattern: "/pods", Methods: []string{"GET", "POST"}, Produces: "application/json", Handler: ok},
		Route{Pattern: "/any", Handler: ok},
		Route{Pattern: "/x/{a}", Handler: ok},
		Route{Pattern: "/y/*", Handler: ok},
	)
	for _, c := range []struct {
		method, path, accept string
		status               int
	}{
		{"GET", "/pods", "", 200}, {"GET", "/pods", "*/*", 200}, {"GET", "/pods", "text/html, application/json;q=0.1", 200},
		{"GET", "/pods", "Application/*", 200}, {"GET", "/pods", "text/html", 406}, {"GET", "/pods", "application/vnd.kubernetes.protobuf", 406},
		{"PUT", "/pods", "text/html", 405}, {"GET", "/any", "text/html", 200},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		table.ServeHTTP(w, r)
		if w.Code != c.status || c.status == 405 && w.Header().Get("Allow") != "GET, POST" ||
			c.status == 406 && w.Body.String() != "406: Not Acceptable\n\nAvailable representations: application/json" {
			t.Errorf("%s %s %q: %d %v %q, want %d", c.method, c.path, c.accept, w.Code, w.Header(), w.Body, c.status)
		}
	}
	if got := strings.Join(table.Fixed(), " "); got != "/pods /any" {
		t.Errorf("fixed paths %q", got)
	}
}

func FuzzAPathIsServedByWhatItMatchesExactly(f *testing.F) {
	for _, seed := range []string{"/", "//", "/x/1/2", "/x//2", "/x/%2e%2e/y", "/logs/../x/1/2", "/debug/", "/x/1/2/", "\x00", "/x/a%2Fb/c"} {
		f.Add(seed)
	}
	table := &Table{}
	table.Add(
		Route{Pattern: "/x/{a}/{b}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", url.PathEscape(Param(r, "a")))
			w.Header().Set("B", url.PathEscape(Param(r, "b")))
		})},
		Route{Pattern: "/debug/*", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Open", "1") })},
	)
	f.Fuzz(func(t *testing.T, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		w := httptest.NewRecorder()
		table.ServeHTTP(w, r)
		switch {
		case w.Header().Get("A") != "":
			a, _ := url.PathUnescape(w.Header().Get("A"))
			b, _ := url.PathUnescape(w.Header().Get("B"))
			if path != "/x/"+a+"/"+b || a == "" || b == "" {
				t.Fatalf("%q is %q and %q", path, a, b)
			}
		case w.Header().Get("Open") != "":
			if !strings.HasPrefix(path, "/debug/") {
				t.Fatalf("%q is below /debug/", path)
			}
		case w.Code != 404:
			t.Fatalf("%q: %d", path, w.Code)
		}
	})
}
