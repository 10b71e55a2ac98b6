package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/polylet/polylet/internal/rpcerr"
)

type fakeProcess struct {
	name string

	mu      sync.Mutex
	level   int32
	profile Profile
	err     error
}

func (f *fakeProcess) Profile(_ context.Context, p Profile) (func() (string, []byte, error), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profile = p
	done := false
	return func() (string, []byte, error) {
		if done || f.err != nil {
			return "", nil, errors.Join(f.err, map[bool]error{true: io.EOF}[f.err == nil])
		}
		done = true
		return "application/octet-stream", []byte(p.Name + " of " + f.name), nil
	}, nil
}

func (f *fakeProcess) SetVerbosity(_ context.Context, level int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.level = level
	return f.err
}

func five() (list []Named, podsync, stats *fakeProcess) {
	podsync, stats = &fakeProcess{name: "podsync"}, &fakeProcess{name: "stats"}
	return []Named{{"podsync", podsync}, {"stats", stats}}, podsync, stats
}

func TestAProfileIsPodsyncsUnlessAProcessIsNamed(t *testing.T) {
	list, podsync, stats := five()
	h := Pprof(list...)
	for _, c := range []struct {
		path   string
		status int
		body   string
		of     *fakeProcess
		want   Profile
	}{
		{"/debug/pprof/heap?gc=1&debug=1", 200, "heap of podsync", podsync, Profile{Name: "heap", Debug: 1, GC: true}},
		{"/debug/pprof/podsync/heap", 200, "heap of podsync", podsync, Profile{Name: "heap"}},
		{"/debug/pprof/stats/profile?seconds=9", 200, "profile of stats", stats, Profile{Name: "profile", Seconds: 9}},
		{"/debug/pprof/stats/symbol?0x1+0x2", 200, "symbol of stats", stats, Profile{Name: "symbol", Symbols: "0x1+0x2"}},
		{"/debug/pprof/stats/", 200, " of stats", stats, Profile{}},
		{"/debug/pprof/stats", 301, "", nil, Profile{}},
		{"/debug/pprof/", 200, "<a href='stats/'>stats</a>", podsync, Profile{}},
		{"/debug/pprof/nosuch/heap", 200, "nosuch/heap of podsync", podsync, Profile{Name: "nosuch/heap"}},
		{"/debug/pprof/profile?seconds=-1", 400, "seconds", nil, Profile{}},
		{"/debug/pprof/profile?seconds=1.5", 400, "seconds", nil, Profile{}},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || c.of != nil && c.of.profile != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.path, w.Code, w.Body, c.status, c.body)
		}
	}
	for err, status := range map[error]int{
		fmt.Errorf("%w: x", rpcerr.ErrNotFound): 404, fmt.Errorf("%w: x", rpcerr.ErrUnavailable): 503, fmt.Errorf("%w: busy", rpcerr.ErrInternal): 500,
	} {
		podsync.err = err
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/heap", nil)); w.Code != status {
			t.Errorf("%v: %d, want %d", err, w.Code, status)
		}
	}
}

func TestTheVerbosityIsSetInAllProcessesThatAnswer(t *testing.T) {
	for _, c := range []struct {
		body   string
		err    error
		status int
		answer string
		level  int32
	}{
		{"4", nil, 200, "successfully set klog.logging.verbosity to 4\n", 4},
		{" 0\n", nil, 200, "successfully set klog.logging.verbosity to 0\n", 0},
		{"5", fmt.Errorf("%w: away", rpcerr.ErrUnavailable), 503, "stats: unavailable: away", 5},
		{"11", fmt.Errorf("%w: use 0 to 10", rpcerr.ErrInvalid), 400, "use 0 to 10", 11},
		{"", nil, 400, "not a number", 7}, {"-1", nil, 400, "not a number", 7}, {"many", nil, 400, "not a number", 7},
		{strings.Repeat("1", 65), nil, 400, "too large", 7},
	} {
		list, podsync, stats := five()
		podsync.level, stats.err = 7, c.err
		w := httptest.NewRecorder()
		Verbosity(list...).ServeHTTP(w, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.answer) || podsync.level != c.level {
			t.Errorf("%q: %d %q and level %d, want %d %q %d", c.body, w.Code, w.Body, podsync.level, c.status, c.answer, c.level)
		}
	}
}

func FuzzParametersOfAProfileAreBoundedOrRefused(f *testing.F) {
	for _, seed := range []string{"", "seconds=5", "seconds=-1", "seconds=99999999999", "debug=2&gc=1", "debug=x", "%zz", "0x1+0x2", "seconds=%00"} {
		f.Add("heap", seed)
		f.Add("symbol", seed)
	}
	f.Fuzz(func(t *testing.T, name, raw string) {
		p, err := parse(name, &url.URL{RawQuery: raw})
		if err == nil && (p.Seconds < 0 || p.Name != name || name != "symbol" && p.Symbols != "") {
			t.Fatalf("%+v", p)
		}
	})
}
