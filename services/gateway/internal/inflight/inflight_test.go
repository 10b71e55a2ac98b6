package inflight

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a handler that serves until it is told to end.
func slow(end <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })
}

func ask(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/x", nil))
	return w
}

func TestOneTooManyIsRefusedAtOnceOrAfterItsWait(t *testing.T) {
	for name, wait := range map[string]time.Duration{"streams": 0, "documents": 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			h := New(Config{Name: name, AtOnce: 2, Wait: wait}).Wrap(slow(end))
			for range 2 {
				go ask(t.Context(), h)
			}
			synctest.Wait()
			begin := time.Now()
			if w := ask(t.Context(), h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || time.Since(begin) != wait {
				t.Errorf("%s: %d after %s, want 429 after %s", name, w.Code, time.Since(begin), wait)
			}
			close(end)
			synctest.Wait()
			if w := ask(t.Context(), h); w.Code != http.StatusOK {
				t.Errorf("%s: %d once there is room", name, w.Code)
			}
		})
	}
}

func TestWhoWaitsGetsTheFirstPlaceThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := New(Config{Name: "documents", AtOnce: 1, Wait: time.Minute}).Wrap(slow(end))
		go ask(t.Context(), h)
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(end) })
		begin := time.Now()
		if w := ask(t.Context(), h); w.Code != http.StatusOK || time.Since(begin) != time.Second {
			t.Errorf("%d after %s", w.Code, time.Since(begin))
		}
	})
}

func TestAClientThatLeavesGivesUpItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		h := New(Config{Name: "documents", AtOnce: 1, Wait: time.Hour}).Wrap(slow(end))
		go ask(t.Context(), h)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		ask(ctx, h)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("waited for %s", took)
		}
	})
}

func TestABodyThatIsTooLargeIsRefusedBeforeAPlaceIsTaken(t *testing.T) {
	seen := ""
	h := New(Config{Name: "documents", AtOnce: 1, BodyTime: time.Second, BodyBytes: 8}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if seen = string(text); err != nil {
			t.Error(err)
		}
	}))
	for body, want := range map[string]int{"12345678": http.StatusOK, "123456789": http.StatusRequestEntityTooLarge, "": http.StatusOK} {
		seen = "nothing"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", strings.NewReader(body)))
		if w.Code != want || want == http.StatusOK && seen != body || want != http.StatusOK && seen != "nothing" {
			t.Errorf("%q: %d, the handler saw %q", body, w.Code, seen)
		}
	}
}

func TestWhoPromisesABodyAndSendsNoneTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Name: "documents", AtOnce: 1, Wait: time.Minute, BodyTime: time.Second, BodyBytes: 8}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		body, end := io.Pipe()
		go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", body))
		synctest.Wait()
		time.AfterFunc(time.Second, func() { _ = end.Close() })
		begin := time.Now()
		if w := ask(t.Context(), h); w.Code != http.StatusOK || time.Since(begin) > 0 {
			t.Errorf("%d after %s", w.Code, time.Since(begin))
		}
		time.Sleep(time.Second)
	})
}

func TestOneHoldsNotAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := New(Config{Name: "streams", AtOnce: 3, MostOfOne: 2, Of: func(r *http.Request) string { return r.URL.Query().Get("of") }}).Wrap(slow(end))
		get := func(of string) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x?of="+of, nil))
			return w.Code
		}
		for range 2 {
			go get("a")
		}
		synctest.Wait()
		if code := get("a"); code != http.StatusTooManyRequests {
			t.Errorf("a third of one: %d", code)
		}
		others := make(chan int, 2)
		go func() { others <- get("b") }()
		synctest.Wait()
		if len(others) > 0 {
			t.Errorf("the first of another: %d", <-others)
		}
		if code := get(""); code != http.StatusTooManyRequests {
			t.Errorf("one more than there are places: %d", code)
		}
		close(end)
		synctest.Wait()
		if code := <-others; code != http.StatusOK {
			t.Errorf("the other's: %d", code)
		}
		for _, of := range []string{"a", "a", "a", ""} {
			if code := get(of); code != http.StatusOK {
				t.Errorf("%q once there is room: %d", of, code)
			}
		}
	})
}
