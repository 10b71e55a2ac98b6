package csi

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A driver's container that was killed comes back without its registrar, which goes on beside it.
func TestPodsOfADriverThatWasKilledAreWokenOnceItAnswersWithoutRegisteringAnew(t *testing.T) {
	b := newBench(t, nil).register(t)
	b.kill()
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("it is set up by nobody")
	}
	select {
	case uid := <-b.woken:
		t.Fatalf("%s is woken while the driver is away", uid)
	default:
	}
	b.serve()
	b.wakes(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}

	b.kill()
	remains := b.remains()
	if err := b.Teardown(t.Context(), remains); err == nil {
		t.Fatal("it is taken down by nobody")
	}
	b.serve()
	b.wakes(t)
	if err := b.Teardown(t.Context(), remains); err != nil {
		t.Fatal(err)
	}
}

// wakes waits until the pod is.
func (b *bench) wakes(t *testing.T) {
	t.Helper()
	select {
	case uid := <-b.woken:
		if uid != "uid-1" {
			t.Errorf("%s is woken", uid)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody is woken")
	}
}

// Who had asked the driver as it was hears of it later than those who waited for it.
func TestAPodWhoseCallWasLostAsItsDriverRegisteredAnewIsWokenAtOnce(t *testing.T) {
	b := newBench(t, nil).register(t)
	before := b.drivers.all[driverOf]
	b.Deregister(b.plugin)
	b.register(t)
	if b.drivers.all[driverOf] == before {
		t.Fatal("it is not registered anew")
	}
	b.lost(before, "uid-1", status.Error(codes.Unavailable, "the connection is closing"))
	select {
	case uid := <-b.woken:
		if uid != "uid-1" {
			t.Errorf("%s is woken", uid)
		}
	default:
		t.Error("nobody is woken")
	}
	if waiting := b.drivers.waiting[driverOf]; len(waiting) != 0 {
		t.Errorf("%v wait for it still", waiting)
	}
}

// Who answers is there, whatever it says: its pods have their back-off.
func TestPodsOfADriverThatSaysThatItIsUnavailableAreNotWokenByItsConnection(t *testing.T) {
	b := newBench(t, nil).register(t)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Unavailable, "its server is away") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("it is set up")
	}
	b.drivers.mu.Lock()
	r := b.drivers.all[driverOf]
	awaited, waits := r.awaited, b.drivers.waiting[driverOf]["uid-1"]
	b.drivers.mu.Unlock()
	if awaited || !waits {
		t.Errorf("awaited %v, waits for it to register %v", awaited, waits)
	}
}
