package kubeclient

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

var _ flowcontrol.RateLimiter = (*Rate)(nil)

func TestARateIsSetWhileRequestsGoOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRate(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		took := func(requests int) time.Duration {
			began := time.Now()
			for range requests {
				if err := r.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(began).Round(time.Millisecond)
		}
		if d := took(12); d != 10*time.Second || r.QPS() != 1 {
			t.Errorf("12 requests took %v", d)
		}
		if err := r.Set(10, 1); err != nil || r.QPS() != 10 {
			t.Fatal(err)
		}
		if d := took(11); d != time.Second {
			t.Errorf("11 requests took %v with a higher rate", d)
		}
		if r.Set(10, 0) == nil || r.QPS() != 10 {
			t.Error("no request can go out")
		}
		if err := r.Set(0, 0); err != nil {
			t.Fatal(err)
		}
		if d := took(1000); d != 0 || !r.TryAccept() {
			t.Errorf("1000 requests took %v without a limit", d)
		}
	})
	if _, err := NewRate(1, 0); err == nil {
		t.Error("no request can go out")
	}
}
