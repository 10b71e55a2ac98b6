package identity

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// said is what a Reporter was told last, "well" for what is ready.
type said struct {
	mu   sync.Mutex
	last string
}

func (s *said) Set(name string, ready bool, message string) {
	if ready {
		message = "well"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = name + ": " + message
}

// certificate is from when to when one is valid.
type certificate struct{ begin, end time.Time }

func TestAClientCertificateThatIsNotValidIsToldUntilItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var now atomic.Value
		end := start.Add(time.Minute)
		now.Store(certificate{start.Add(-time.Hour), end})
		var told said
		var ends atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = Watch(ctx, Certificate{Name: "client certificate", Text: "the client certificate", Refused: "it is refused", Renewed: "renew it", Ended: func() { ends.Add(1) }, Valid: func() (time.Time, time.Time) {
				c, _ := now.Load().(certificate)
				return c.begin, c.end
			}}, &told, func(context.Context, node.Event) {})
		}()
		last := func(after time.Duration) string {
			time.Sleep(after)
			synctest.Wait()
			told.mu.Lock()
			defer told.mu.Unlock()
			return told.last
		}
		if got := last(45 * time.Second); got != "" {
			t.Errorf("while it is valid: %q", got)
		}
		if got := last(30 * time.Second); !strings.Contains(got, "client certificate: ") || !strings.Contains(got, end.UTC().Format(time.RFC3339)) || !strings.Contains(got, "renew") {
			t.Errorf("when it has ended: %q", got)
		}
		if got := last(time.Minute); ends.Load() != 1 {
			t.Errorf("its end is told %d times, %s", ends.Load(), got)
		}
		now.Store(certificate{start.Add(-time.Hour), end.Add(time.Hour)})
		if got := last(lookAgain); got != "client certificate: well" {
			t.Errorf("when it was renewed: %q", got)
		}
		now.Store(certificate{start.Add(time.Hour), end.Add(time.Hour)})
		if got := last(lookAgain); !strings.Contains(got, "set this machine's clock") {
			t.Errorf("when the clock is behind: %q", got)
		}
		now.Store(certificate{})
		if got := last(lookAgain); got != "client certificate: well" {
			t.Errorf("a token instead of it: %q", got)
		}
		cancel()
		<-done
	})
}

func TestOfACertificateThatEndsSoonIsWarnedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		end := start.Add(100 * 24 * time.Hour)
		var mu sync.Mutex
		var all []string
		seen := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := Certificate{Name: "x", Text: "the serving certificate", Renewed: "renew it", Valid: func() (time.Time, time.Time) { return start, end }}
			_ = Watch(ctx, c, &said{}, func(_ context.Context, e node.Event) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, e.Reason+" "+e.Message)
			})
		}()
		time.Sleep(90*24*time.Hour - time.Minute)
		if sent := seen(); len(sent) != 0 {
			t.Errorf("too early: %v", sent)
		}
		time.Sleep(2 * time.Minute)
		if sent := seen(); len(sent) != 1 || !strings.HasPrefix(sent[0], "CertificateExpiresSoon the serving certificate ends at "+end.UTC().Format(time.RFC3339)) || !strings.HasSuffix(sent[0], "renew it") {
			t.Errorf("at the end of its life: %v", sent)
		}
		time.Sleep(36 * time.Hour)
		if sent := seen(); len(sent) != 2 {
			t.Errorf("a day later: %v", sent)
		}
		time.Sleep(9 * 24 * time.Hour)
		if sent := seen(); !strings.HasPrefix(sent[len(sent)-1], "CertificateExpired ") {
			t.Errorf("after its end: %v", sent)
		}
		cancel()
		<-done
	})
}

// Nobody asks for another one: what it can be used for has to be told all the same.
func TestWhatElseIsAmissIsToldWithAnEventUntilItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var amiss atomic.Value
		amiss.Store("it is another node's")
		var told said
		var events []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = Watch(ctx, Certificate{
				Name: "client certificate", Amiss: func() string { return amiss.Load().(string) }, Ended: func() { t.Error("it is said to have ended") },
				Valid: func() (time.Time, time.Time) { return start.Add(-time.Hour), start.Add(24 * time.Hour) },
			}, &told, func(_ context.Context, e node.Event) { events = append(events, e.Reason+": "+e.Message) })
		}()
		for _, want := range []string{"it is another node's", ""} {
			amiss.Store(want)
			time.Sleep(time.Hour)
			synctest.Wait()
			told.mu.Lock()
			if got := told.last; got != "client certificate: "+cmp.Or(want, "well") {
				t.Errorf("%q; want %q", got, want)
			}
			told.mu.Unlock()
		}
		cancel()
		<-done
		if want := []string{"CertificateNotUsable: it is another node's"}; !slices.Equal(events, want) {
			t.Errorf("events %q", events)
		}
	})
}

func TestOfOneThatIsAmissAndHasEndedItsEndIsTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var events []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = Watch(ctx, Certificate{
				Name: "x", Amiss: func() string { return "it is another node's" },
				Valid: func() (time.Time, time.Time) { return start.Add(-time.Hour), start.Add(-time.Minute) },
			}, &said{}, func(_ context.Context, e node.Event) { events = append(events, e.Reason) })
		}()
		time.Sleep(time.Hour)
		cancel()
		<-done
		if want := []string{"CertificateExpired"}; !slices.Equal(events, want) {
			t.Errorf("events %q", events)
		}
	})
}

func TestAWarningIsSentAgainOnceTheClockWasSetBackByADay(t *testing.T) {
	var w warning
	now := time.Now()
	end := now.Add(time.Hour)
	for n, step := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {time.Hour, false}, {-time.Hour, false}, {-25 * time.Hour, true}, {-24 * time.Hour, false}} {
		if got := w.due("CertificateExpiresSoon", end, now.Add(step.at)); got != step.want {
			t.Errorf("step %d: %v", n, got)
		}
	}
	if !w.due("CertificateExpiresSoon", end.Add(time.Hour), now.Add(-24*time.Hour)) {
		t.Error("of another certificate nothing is told")
	}
}

// A node with a token has none.
func TestOfNoCertificateNothingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var told said
		_ = Watch(ctx, Certificate{Name: "x", Valid: func() (begin, end time.Time) { return }, Ended: func() { t.Error("its end is told") }},
			&told, func(_ context.Context, e node.Event) { t.Errorf("event %+v", e) })
		if told.last != "" {
			t.Errorf("told %q", told.last)
		}
	})
}
