package wake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/backoff"
)

func TestASignalThatNobodyWaitsForYetIsKeptOnce(t *testing.T) {
	s := New()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("two settings woke twice")
	default:
	}
}

func TestWhoeverIsToTryAgainIsWokenBySignalTimeOrTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, retry := New(), backoff.New(backoff.Config{Initial: time.Second, Max: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		took := func(again bool) time.Duration {
			began := time.Now()
			s.Wait(ctx, retry, again)
			return time.Since(began)
		}
		if first, second := took(true), took(true); first != time.Second || second != 2*time.Second {
			t.Errorf("tried again after %v, then after %v", first, second)
		}
		time.AfterFunc(time.Hour, s.Set)
		if got := took(false); got != time.Hour {
			t.Errorf("who has nothing to try again was woken after %v", got)
		}
		if got := took(true); got != time.Second {
			t.Errorf("after a success it is tried again after %v", got)
		}
		time.AfterFunc(time.Millisecond, cancel)
		if got := took(false); got != time.Millisecond {
			t.Errorf("the end was noticed after %v", got)
		}
	})
}
