package limit

import (
	"context"
	"net/http"
	"net/http/httptest"
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

func TestReviewsHaveANumberInAllAndOfEachAddress(t *testing.T) {
	l := NewReviews(3, 2)
	first, second := l.Begin("10.0.0.1:1"), l.Begin("10.0.0.1:2")
	if first == nil || second == nil || l.Begin("10.0.0.1:3") != nil {
		t.Error("an address has two reviews")
	}
	third := l.Begin("[::1]:1")
	if third == nil || l.Begin("10.0.0.3:1") != nil {
		t.Error("there are three in all")
	}
	first()
	if end := l.Begin("10.0.0.1:4"); end == nil {
		t.Error("the place of one that ended stays taken")
	} else {
		end()
	}
	second()
	third()
	if len(l.byHost) != 0 || l.all != 0 {
		t.Errorf("%v and %d are left over", l.byHost, l.all)
	}
}
