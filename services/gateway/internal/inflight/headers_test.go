package inflight

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneAddressDoesNotHoldAllThatRequestsMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeaders(HeadersConfig{
			Known: Share{Most: 3000 + 3*eachName, MostOfOne: 2000 + 2*eachName}, Each: 100,
			Of: func(r *http.Request) (string, bool) { return HostOf(r.RemoteAddr), true },
		})
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
		if h.known.all != 0 || len(h.known.of) != 0 {
			t.Errorf("%v is left over", h.known)
		}
	})
}

func TestManySmallHeadersCountAsWhatTheyTake(t *testing.T) {
	h := NewHeaders(HeadersConfig{Unknown: Share{Most: 1 << 20, MostOfOne: 1 << 20}, Of: func(*http.Request) (string, bool) { return "", false }})
	served := h.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if h.unknown.all < mostNames*eachName {
			t.Errorf("%d headers count as %d bytes", mostNames, h.unknown.all)
		}
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for i := range mostNames {
		r.Header.Set(strconv.Itoa(i), "")
	}
	before, more := r.Header, r.Header.Clone()
	w := httptest.NewRecorder()
	if served.ServeHTTP(w, r); w.Code != http.StatusOK || len(before) > 0 || h.unknown.all != 0 {
		t.Errorf("%d, %d headers and %d bytes are held", w.Code, len(before), h.unknown.all)
	}
	more.Set("One-More", "")
	r.Header, w = more, httptest.NewRecorder()
	if served.ServeHTTP(w, r); w.Code != http.StatusRequestHeaderFieldsTooLarge || h.unknown.all != 0 {
		t.Errorf("one more: %d, %d bytes are held", w.Code, h.unknown.all)
	}
}

func TestHeadersOfOneNameCountEach(t *testing.T) {
	h := NewHeaders(HeadersConfig{Unknown: Share{Most: 1 << 20, MostOfOne: 1 << 20}, Of: func(*http.Request) (string, bool) { return "", false }})
	for values, want := range map[int]int{mostNames: http.StatusOK, mostNames + 1: http.StatusRequestHeaderFieldsTooLarge} {
		served := h.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if h.unknown.all < values*eachName {
				t.Errorf("%d headers of one name count as %d bytes", values, h.unknown.all)
			}
		}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header["A"] = make([]string, values)
		w := httptest.NewRecorder()
		if served.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d headers of one name: %d", values, w.Code)
		}
	}
}

// refusing is an answer of a request that is refused, which nobody takes until end.
type refusing struct {
	http.ResponseWriter
	end chan struct{}
}

func (r refusing) SetWriteDeadline(time.Time) error { return nil }

func (r refusing) FlushError() error {
	<-r.end
	return nil
}

func TestOfRefusalsThatNobodyTakesUnknownClientsHoldNothingAndTheKnownLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeaders(HeadersConfig{
			Known: Share{Most: 2000, MostOfOne: 2000}, Unknown: Share{Most: 2000, MostOfOne: 2000}, Each: 100,
			Of: func(r *http.Request) (string, bool) { return HostOf(r.RemoteAddr), r.RemoteAddr == "10.0.0.1:1" },
		})
		no := h.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
		end, done := make(chan struct{}), make(chan struct{}, 2)
		for _, address := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr, r.ProtoMajor = address, 2
			r.Header.Set("X", strings.Repeat("x", 800))
			go func() {
				no.ServeHTTP(refusing{httptest.NewRecorder(), end}, r)
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		if h.known.all != 100 || h.unknown.all != 0 {
			t.Errorf("%d and %d bytes are held", h.known.all, h.unknown.all)
		}
		close(end)
		<-done
		<-done
		if h.known.all != 0 || len(h.known.of) != 0 || len(h.unknown.of) != 0 {
			t.Errorf("%v and %v are left over", h.known, h.unknown)
		}
	})
}
