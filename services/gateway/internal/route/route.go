// Package route maps paths to handlers in the kubelet's manner: auth comes
// first, then 404 and 405 with its texts. It must never know what a handler does.
package route

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Route is one path.
type Route struct {
	// Pattern is a path; a segment in braces matches one that is not empty and
	// names it for Param. A "*" at the end matches whatever follows.
	Pattern string
	// Slash says that one more slash at the end of a path changes nothing.
	Slash bool
	// Methods that are served; none means any.
	Methods []string
	// Produces is the one media type of the answer; a client that takes others
	// only is refused. Empty leaves that to the handler.
	Produces string
	// Handler serves it.
	Handler http.Handler
}

// Table is a set of routes. The zero value answers 404 to everything. Not to be
// changed while it serves.
type Table struct {
	routes  []compiled
	longest int // segments of a pattern
}

type compiled struct {
	Route
	segments []string
	open     bool
}

// Add appends routes; of several that match a path, one that serves the method
// wins, then the first.
func (t *Table) Add(routes ...Route) {
	for _, r := range routes {
		pattern, open := strings.CutSuffix(r.Pattern, "*")
		segments := strings.Split(pattern, "/")
		t.routes = append(t.routes, compiled{Route: r, segments: segments, open: open})
		t.longest = max(t.longest, len(segments))
	}
}

// Fixed returns the patterns that are single paths.
func (t *Table) Fixed() []string {
	var out []string
	for _, c := range t.routes {
		if !c.open && !strings.Contains(c.Pattern, "{") {
			out = append(out, c.Pattern)
		}
	}
	return out
}

type paramsKey struct{}

// Param returns what a named segment matched; empty when there is none.
func Param(r *http.Request, name string) string {
	params, _ := r.Context().Value(paramsKey{}).(map[string]string)
	return params[name]
}

// ServeHTTP implements http.Handler.
func (t *Table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	// One more than with a slash at the end suffices to say that a path is longer than all
	// patterns: of a megabyte of slashes sixteen would be made.
	path := strings.SplitN(r.URL.Path, "/", t.longest+2)
	for _, c := range t.routes {
		params, ok := c.match(path)
		if !ok {
			continue
		}
		if len(c.Methods) > 0 && !slices.Contains(c.Methods, r.Method) {
			allowed = append(allowed, c.Methods...)
			continue
		}
		if !accepts(r, c.Produces) {
			httperror.Text(w, http.StatusNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+c.Produces)
			return
		}
		if len(params) > 0 {
			r = r.WithContext(context.WithValue(r.Context(), paramsKey{}, params))
		}
		c.Handler.ServeHTTP(w, r)
		return
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		httperror.Text(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
		return
	}
	httperror.Text(w, http.StatusNotFound, "404: Page Not Found")
}

func (c compiled) match(path []string) (map[string]string, bool) {
	n := len(c.segments)
	if c.open {
		// The last segment of an open pattern is what stands before the star.
		n--
	}
	if c.Slash && len(path) == n+1 && path[n] == "" {
		path = path[:n]
	}
	if c.open && len(path) <= n || !c.open && len(path) != n {
		return nil, false
	}
	var params map[string]string
	for i, want := range c.segments[:n] {
		if len(want) > 2 && want[0] == '{' {
			if path[i] == "" {
				return nil, false
			}
			if params == nil {
				params = make(map[string]string, 4)
			}
			params[want[1:len(want)-1]] = path[i]
			continue
		}
		if path[i] != want {
			return nil, false
		}
	}
	return params, true
}

// accepts says whether the client takes a media type. One that it gives weight
// 0 is still taken, as by the kubelet.
func accepts(r *http.Request, produces string) bool {
	values := r.Header.Values("Accept")
	if produces == "" || len(values) == 0 {
		return true
	}
	group, _, _ := strings.Cut(produces, "/")
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		kind, _, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "", "*/*", produces, group + "/*":
			return true
		}
	}
	return false
}
