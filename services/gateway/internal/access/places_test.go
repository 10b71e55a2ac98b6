package access

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

func TestRequestsThatWaitForOneTokenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		hung := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
			<-end
			return nil, false, nil
		})
		a := newAskers(Config{Begin: anyNumber}, &refusedTokens{})
		token := a.around(hung)
		var group sync.WaitGroup
		for range mostWaiting {
			group.Go(func() { _, _, _ = token.AuthenticateToken(t.Context(), "one") })
		}
		synctest.Wait()
		if _, _, err := token.AuthenticateToken(t.Context(), "one"); !errors.Is(err, errTooMany) {
			t.Errorf("one more: %v", err)
		}
		close(end)
		group.Wait()
		if _, _, err := token.AuthenticateToken(t.Context(), "one"); err != nil || a.waiting != 0 || len(a.byToken) != 0 {
			t.Errorf("%v, %d waiting, %v", err, a.waiting, a.byToken)
		}
	})
}

// TestThoseWhoWaitOfAnAddressLeaveOneOfEachConnection: many may have one address.
func TestThoseWhoWaitOfAnAddressLeaveOneOfEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		a := newAskers(Config{Begin: anyNumber}, &refusedTokens{})
		token := a.around(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			if token == "new" {
				return &authenticator.Response{}, true, nil
			}
			<-end
			return nil, false, nil
		}))
		on := func(connection string) context.Context {
			return context.WithValue(t.Context(), addressKey{}, connection)
		}
		var group sync.WaitGroup
		for i := range mostWaiting {
			group.Go(func() { _, _, _ = token.AuthenticateToken(on("10.0.0.1:"+strconv.Itoa(i%8)), "one") })
		}
		synctest.Wait()
		if _, _, err := token.AuthenticateToken(on("10.0.0.1:1"), "new"); !errors.Is(err, errTooMany) {
			t.Errorf("one more on a connection of those: %v", err)
		}
		if _, ok, err := token.AuthenticateToken(on("10.0.0.1:9"), "new"); !ok || err != nil {
			t.Errorf("on a connection of its own: %v, %v", ok, err)
		}
		close(end)
		group.Wait()
		if len(a.waitingOf) != 0 {
			t.Errorf("%v", a.waitingOf)
		}
	})
}

func TestUnknownClientsWhoWaitKeepNobodyOutWhoseTokenWasGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var hangs atomic.Bool
		review := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			if token == "good" {
				return &authenticator.Response{}, true, nil
			}
			<-end
			return nil, false, errors.New("invalid bearer token")
		})
		// A token that is known has a place kept for it.
		a := newAskers(Config{Begin: func(_ string, known bool) func() {
			if hangs.Load() && !known {
				return nil
			}
			return func() {}
		}}, &refusedTokens{})
		token := a.around(a.within(review))
		if _, ok, err := token.AuthenticateToken(t.Context(), "good"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		var group sync.WaitGroup
		for range mostWaiting {
			group.Go(func() { _, _, _ = token.AuthenticateToken(t.Context(), "invented") })
		}
		synctest.Wait()
		hangs.Store(true)
		if _, ok, err := token.AuthenticateToken(t.Context(), "good"); !ok || err != nil {
			t.Errorf("who was let in before: %v, %v", ok, err)
		}
		close(end)
		group.Wait()
		if a.waiting != 0 || len(a.byToken) != 0 {
			t.Errorf("%d waiting, %v", a.waiting, a.byToken)
		}
	})
}

func TestATokenIsGoodForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g goodTokens
		g.note("a", true)
		time.Sleep(goodFor - time.Second)
		if !g.has("a") {
			t.Error("it is forgotten too early")
		}
		if time.Sleep(time.Second); g.has("a") {
			t.Error("it is good for ever")
		}
	})
}

func TestATokenThatIsRefusedIsNoLongerGoodAndTheyAreBounded(t *testing.T) {
	var g goodTokens
	g.note("a", true)
	if !g.has("a") || g.has("b") {
		t.Error("a is good, b is not")
	}
	if g.note("a", false); g.has("a") {
		t.Error("a was refused")
	}
	for i := range 2 * mostGood {
		g.note(strconv.Itoa(i), true)
	}
	if len(g.of) != mostGood || !g.has(strconv.Itoa(2*mostGood-1)) {
		t.Errorf("%d are kept", len(g.of))
	}
}
