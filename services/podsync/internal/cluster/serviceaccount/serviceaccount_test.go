package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-logr/logr/funcr"
	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
)

// issuer is an apiserver that counts, and fails while err is set.
type issuer struct {
	mu    sync.Mutex
	calls []*authv1.TokenRequest
	err   error
	delay time.Duration
	ahead time.Duration // its clock, of the node's
}

func (i *issuer) CreateToken(ctx context.Context, _, _ string, req *authv1.TokenRequest) (*authv1.TokenRequest, error) {
	if i.delay > 0 {
		select {
		case <-time.After(i.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, req)
	if i.err != nil {
		return nil, i.err
	}
	out := req.DeepCopy()
	out.Status.Token = fmt.Sprintf("token-%d", len(i.calls))
	out.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(i.ahead + time.Duration(*req.Spec.ExpirationSeconds)*time.Second))
	return out, nil
}

var request = Request{Namespace: "ns", ServiceAccount: "sa", PodName: "p", PodUID: "uid", Audience: "vault"}

func TestATokenIsKeptUntilFourFifthsOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		c := New(Config{}, Deps{Requester: i})
		first, err := c.Get(t.Context(), request)
		if err != nil || first.Value != "token-1" {
			t.Fatalf("first = %+v, %v", first, err)
		}
		time.Sleep(47 * time.Minute)
		if again, _ := c.Get(t.Context(), request); again.Value != "token-1" {
			t.Fatalf("after 47 of 60 minutes: %q, want the kept one", again.Value)
		}
		time.Sleep(time.Minute + time.Second)
		if again, _ := c.Get(t.Context(), request); again.Value != "token-2" {
			t.Fatalf("after 48 of 60 minutes: %q, want a fresh one", again.Value)
		}
		spec := i.calls[0].Spec
		if spec.BoundObjectRef.UID != "uid" || spec.BoundObjectRef.Kind != "Pod" || *spec.ExpirationSeconds != 3600 || spec.Audiences[0] != "vault" {
			t.Errorf("the request was %+v", spec)
		}
	})
}

// A node that comes up without a clock of its own may be hours or years off.
func TestATokenIsRenewedInTimeThoughTheNodesClockIsWrong(t *testing.T) {
	for _, ahead := range []time.Duration{-48 * time.Hour, -2 * time.Hour, -50 * time.Minute, 50 * time.Minute, 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			i := &issuer{ahead: ahead}
			c := New(Config{}, Deps{Requester: i})
			for range 47 {
				got, err := c.Get(t.Context(), request)
				if err != nil || got.Value != "token-1" {
					t.Fatalf("the apiserver's clock is %v ahead: %+v, %v", ahead, got, err)
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(time.Minute + time.Second)
			if again, err := c.Get(t.Context(), request); err != nil || again.Value != "token-2" {
				t.Errorf("the apiserver's clock is %v ahead: after 48 minutes %+v, %v", ahead, again, err)
			}
		})
	}
}

func TestATokenIsDueWhenEitherClockSaysSo(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name         string
		wall, passed time.Duration // since now, by each clock
		due          bool
	}{
		{"the time has come", time.Hour, time.Hour, true},
		{"it has not", 59 * time.Minute, 59 * time.Minute, false},
		{"the machine slept", 2 * time.Hour, time.Minute, true},
		{"the clock was set back", -24 * time.Hour, time.Hour, true},
		{"the clock was set back just now", -24 * time.Hour, time.Minute, false},
	} {
		if got := Due(reading(t, now.Add(tc.wall), tc.passed-tc.wall), now.Add(time.Hour)); got != tc.due {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// reading is a time whose monotonic reading is another one than it was, as after
// the wall clock was set.
func reading(t *testing.T, at time.Time, by time.Duration) time.Time {
	moved := at
	*(*int64)(unsafe.Add(unsafe.Pointer(&moved), unsafe.Sizeof(uint64(0)))) += int64(by) // behind the wall clock's word
	if moved.Sub(at) != by || !moved.Round(0).Equal(at.Round(0)) {
		t.Fatalf("a time.Time is not laid out as it was: %v became %v", at, moved)
	}
	return moved
}

func TestAStaleTokenIsUsedWhileTheApiserverIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		c := New(Config{}, Deps{Requester: i})
		if _, err := c.Get(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		i.err = errors.New("connection refused")
		time.Sleep(50 * time.Minute)
		kept, err := c.Get(t.Context(), request)
		if err != nil || kept.Value != "token-1" {
			t.Fatalf("while valid: %+v, %v", kept, err)
		}
		if wait := time.Until(kept.Refresh); wait <= 0 || wait > time.Minute {
			t.Errorf("tried again in %v, want soon but not at once", wait)
		}
		time.Sleep(11 * time.Minute)
		if _, err := c.Get(t.Context(), request); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("after its end: err = %v, want the cause", err)
		}
	})
}

func TestRenewalsThatFailBackOffAndAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		i := &issuer{}
		c := New(Config{}, Deps{Requester: i})
		day := request
		day.ExpirationSeconds = 86400
		first, err := c.Get(ctx, day)
		if err != nil {
			t.Fatal(err)
		}
		i.err = errors.New("connection refused")
		last := time.Now()
		for token := first; err == nil; token, err = c.Get(ctx, day) {
			last = time.Now()
			time.Sleep(time.Until(token.Refresh)) // as the volumes' refresh does
		}
		if n := len(i.calls); n < 80 || n > 200 {
			t.Errorf("asked %d times for one token in the fifth of a day", n)
		}
		if left := first.Expires.Sub(last); left > time.Minute {
			t.Errorf("asked for the last time %v before its end", left)
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "connection refused") {
			t.Errorf("the log: %q", lines)
		}
		i.err = nil
		if _, err := c.Get(ctx, day); err != nil || len(lines) != 2 {
			t.Errorf("%v, the log: %q", err, lines)
		}
		time.Sleep(20 * time.Hour)
		i.err = errors.New("connection refused")
		kept, err := c.Get(ctx, day)
		if wait := time.Until(kept.Refresh); err != nil || wait > 12*time.Second || len(lines) != 3 {
			t.Errorf("the next time it waits %v, %v, the log: %q", wait, err, lines)
		}
	})
}

func TestManyAskersMakeOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{delay: time.Second}
		c := New(Config{}, Deps{Requester: i})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if tok, err := c.Get(t.Context(), request); err != nil || tok.Value != "token-1" {
					t.Errorf("got %+v, %v", tok, err)
				}
			})
		}
		wg.Wait()
		if len(i.calls) != 1 {
			t.Errorf("%d requests, want 1", len(i.calls))
		}
	})
}

func TestForgetDropsOnlyThatPodsTokens(t *testing.T) {
	i := &issuer{}
	c := New(Config{}, Deps{Requester: i})
	other := request
	other.PodUID = "other"
	for _, r := range []Request{request, other} {
		if _, err := c.Get(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	c.Forget("uid")
	if tok, _ := c.Get(t.Context(), other); tok.Value != "token-2" {
		t.Errorf("the other pod's token became %q", tok.Value)
	}
	if tok, _ := c.Get(t.Context(), request); tok.Value != "token-3" {
		t.Errorf("the forgotten token is still %q", tok.Value)
	}
}

func TestAHungApiserverIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{}, Deps{Requester: &issuer{delay: time.Hour}})
		start := time.Now()
		if _, err := c.Get(t.Context(), request); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestStandaloneSaysWhatToDo(t *testing.T) {
	_, err := New(Config{}, Deps{Requester: FromClient(nil)}).Get(t.Context(), request)
	if err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken: false") {
		t.Errorf("err = %v", err)
	}
}

func TestRefreshIsNeverLaterThanADay(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		life, want time.Duration
		spread     float64
	}{
		{time.Hour, 48 * time.Minute, 0},
		{time.Hour, 48*time.Minute - 10*time.Second, 1},
		{365 * 24 * time.Hour, 24 * time.Hour, 0},
		{10 * time.Second, 8 * time.Second, 0},
		{10 * time.Second, 7 * time.Second, 1},
	} {
		if got := refreshAt(now, now.Add(c.life), c.spread).Sub(now); got != c.want {
			t.Errorf("life %v spread %v: refresh after %v, want %v", c.life, c.spread, got, c.want)
		}
	}
}

// TestAPodThatNamesManyTokensLeavesTheApiserverToOthers: a source is a few words of a
// spec and a call here.
func TestAPodThatNamesManyTokensLeavesTheApiserverToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{delay: time.Second}
		c := New(Config{}, Deps{Requester: i})
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				r := request
				r.Audience, r.PodUID = fmt.Sprint(n), types.UID(fmt.Sprint(n%10))
				if _, err := c.Get(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		i.mu.Lock()
		asked := len(i.calls)
		i.mu.Unlock()
		if asked == 0 || asked > namespacelimit.Most {
			t.Errorf("%d tokens of one namespace are asked for at once, want at most %d", asked, namespacelimit.Most)
		}
		other := request
		other.Namespace, other.PodUID = "other", "other"
		began := time.Now()
		if _, err := c.Get(t.Context(), other); err != nil || time.Since(began) > time.Second {
			t.Errorf("a token of another namespace: %v after %s", err, time.Since(began))
		}
		all.Wait() // none has failed because it had to wait for its place
	})
}

func TestAPodHasABoundedNumberOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		c := New(Config{}, Deps{Requester: i})
		ask := func(n int) error {
			r := request
			r.Audience = fmt.Sprint(n)
			_, err := c.Get(t.Context(), r)
			return err
		}
		for n := range mostOfPod {
			if err := ask(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := ask(mostOfPod); err == nil || !strings.Contains(err.Error(), "more than 256") || len(i.calls) != mostOfPod {
			t.Errorf("one more: %v, %d calls", err, len(i.calls))
		}
		if err := ask(0); err != nil {
			t.Errorf("one that is kept: %v", err)
		}
		c.Forget(request.PodUID)
		if err := ask(mostOfPod); err != nil {
			t.Errorf("after the pod's end: %v", err)
		}
	})
}
