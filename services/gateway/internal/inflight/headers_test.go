package inflight

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

func TestOneAddressDoesNotHoldAllThatRequestsMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeaders(HeadersConfig{Most: 3000, MostOfOne: 2000, Each: 100})
		end := make(chan struct{})
		served := h.Wrap(slow(end))
		answered := func(address string, header int) (ok bool) {
			defer func() {
				if err, aborted := recover().(error); aborted && !errors.Is(err, http.ErrAbortHandler) {
					t.Error(err)
				} else if aborted {
					ok = false
				}
			}()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = address
			r.Header.Set("X", strings.Repeat("x", header))
			served.ServeHTTP(httptest.NewRecorder(), r)
			return r.Header.Get("X") == ""
		}
		results := make(chan bool, 3)
		go func() { results <- answered("10.0.0.1:1", 890) }()
		go func() { results <- answered("10.0.0.1:2", 890) }()
		synctest.Wait()
		if answered("10.0.0.1:3", 100) {
			t.Error("one address holds more than its part")
		}
		go func() { results <- answered("10.0.0.2:1", 890) }()
		synctest.Wait()
		if len(results) > 0 {
			t.Error("another address does not get in")
		}
		if answered("10.0.0.3:1", 100) {
			t.Error("more is held than all may")
		}
		close(end)
		for range 3 {
			if !<-results {
				t.Error("a request's header is held though it is served")
			}
		}
		if h.all != 0 || len(h.byHost) != 0 {
			t.Errorf("%d and %v are left over", h.all, h.byHost)
		}
	})
}
