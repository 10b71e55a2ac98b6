package inflight

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a writer whose client takes so many bytes a second, until its deadline.
type pipe struct {
	*httptest.ResponseRecorder
	rate int

	mu     sync.Mutex
	closed chan struct{}
}

func newPipe(rate int) *pipe {
	return &pipe{ResponseRecorder: httptest.NewRecorder(), rate: rate, closed: make(chan struct{})}
}

func (p *pipe) SetWriteDeadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Before(time.Now()) {
		close(p.closed)
	}
	return nil
}

func (p *pipe) Write(b []byte) (int, error) {
	select {
	case <-time.After(time.Duration(len(b)) * time.Second / time.Duration(p.rate)):
		return len(b), nil
	case <-p.closed:
		return 0, os.ErrDeadlineExceeded
	}
}

var errRefused = errors.New("429")

// got is how an answer ended.
type got struct {
	whose string
	err   error
}

// receiving is a class of four places whose answers are of a megabyte, for clients that take
// some bytes a second.
type receiving struct {
	handler http.Handler
	over    chan got
}

func newReceiving(slow time.Duration) *receiving {
	r := &receiving{over: make(chan got, 32)}
	r.handler = New(Config{
		Name: "documents", AtOnce: 4, MostOfOne: 3, Of: func(r *http.Request) string { return r.URL.Query().Get("of") },
		Wait: 10 * time.Second, Deadline: 2 * time.Minute, Slow: slow,
	}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, err := w.Write(make([]byte, 1<<20))
		r.over <- got{req.URL.Query().Get("of"), err}
	}))
	return r
}

func (r *receiving) get(t *testing.T, whose string, rate int) {
	w := newPipe(rate)
	r.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x?of="+whose, nil))
	if w.Code == http.StatusTooManyRequests {
		r.over <- got{whose, errRefused}
	}
}

func TestWhoReceivesSlowlyMakesRoomForWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiving(4 * time.Second)
		for i := range 4 {
			go r.get(t, strconv.Itoa(i), 10<<10)
		}
		synctest.Wait()
		begin := time.Now()
		r.get(t, "another", 1<<20)
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("it waited %s", took)
		}
		cut := 0
		for len(r.over) > 0 {
			switch g := <-r.over; {
			case g.whose == "another" && g.err != nil:
				t.Error(g.err)
			case g.whose != "another" && errors.Is(g.err, os.ErrDeadlineExceeded):
				cut++
			case g.whose != "another":
				t.Errorf("%+v", g)
			}
		}
		if cut != 1 {
			t.Errorf("%d are cut off for one who waits", cut)
		}
		begin = time.Now()
		for range 3 {
			if g := <-r.over; g.err != nil {
				t.Errorf("nobody waits, and %s gets %v after %s", g.whose, g.err, time.Since(begin))
			}
		}
	})
}

// cutFirst is who is cut off for one who waits, where four receive at these speeds: the
// others' answers go on.
func cutFirst(t *testing.T, of [4]string, rates [4]int, waits string) string {
	r := newReceiving(4 * time.Second)
	for i := range of {
		go r.get(t, of[i], rates[i])
		synctest.Wait()
	}
	time.Sleep(5 * time.Second)
	r.get(t, waits, 1<<30)
	whose := ""
	for range 5 {
		switch g := <-r.over; {
		case errors.Is(g.err, os.ErrDeadlineExceeded):
			whose += g.whose
		case g.err != nil:
			t.Errorf("%+v", g)
		}
	}
	return whose
}

func TestOfThoseWhoReceiveSlowlyWhoHasMostMakesRoomAndThenTheSlowest(t *testing.T) {
	for _, c := range []struct {
		of    [4]string
		rates [4]int
		waits string
		want  string
	}{
		{[4]string{"slowest", "most", "most", "most"}, [4]int{20 << 10, 40 << 10, 40 << 10, 40 << 10}, "another", "most"},
		{[4]string{"a", "b", "slowest", "d"}, [4]int{80 << 10, 40 << 10, 20 << 10, 40 << 10}, "another", "slowest"},
		// Whoever waits has as many as each of the others: it makes room for itself alone.
		{[4]string{"a", "b", "own", "d"}, [4]int{40 << 10, 40 << 10, 80 << 10, 20 << 10}, "own", "own"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if whose := cutFirst(t, c.of, c.rates, c.waits); whose != c.want {
				t.Errorf("of %v at %v, %q is cut off", c.of, c.rates, whose)
			}
		})
	}
}

// TestNobodyIsCutOffWhoseAnswerIsStillBeingMade: what it waits for is not its client's.
func TestNobodyIsCutOffWhoseAnswerIsStillBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := New(Config{Name: "documents", AtOnce: 1, MostOfOne: 1, Wait: 10 * time.Second, Slow: time.Second}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-end
			if _, err := w.Write([]byte("x")); err != nil {
				t.Error(err)
			}
		}))
		first := newPipe(1 << 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(first, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
		}()
		synctest.Wait()
		second := newPipe(1 << 10)
		h.ServeHTTP(second, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
		if second.Code != http.StatusTooManyRequests {
			t.Errorf("the second: %d", second.Code)
		}
		close(end)
		<-done
	})
}

// TestTheTimeThatTheRestOfAnAnswerTakesToBeMadeIsNotItsClients: on a machine that has much
// to do, documents come in pieces, with pauses.
func TestTheTimeThatTheRestOfAnAnswerTakesToBeMadeIsNotItsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan error, 1)
		h := New(Config{Name: "documents", AtOnce: 1, MostOfOne: 1, Wait: 10 * time.Second, Slow: time.Second}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for range 8 {
				_, failed := w.Write([]byte("x"))
				err = errors.Join(err, failed)
				time.Sleep(time.Second)
			}
			answered <- err
		}))
		for range 2 {
			go h.ServeHTTP(newPipe(1<<10), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
		}
		for range 2 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}
