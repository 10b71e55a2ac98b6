package outbox

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

func key(name string) probe.Key {
	return probe.Key{PodUID: "u", Container: name, Type: probe.Readiness}
}

func TestOnlyTheNewestResultOfAProbeIsSent(t *testing.T) {
	o := New()
	o.Hold(probe.Result{Key: key("a"), Outcome: probe.Success}, true)
	o.Hold(probe.Result{Key: key("a"), Outcome: probe.Failure}, true)
	o.Hold(probe.Result{Key: key("b"), Outcome: probe.Success}, false)
	results, _, err := o.Take(t.Context())
	if err != nil || len(results) != 1 || results[0].Outcome != probe.Failure {
		t.Errorf("%v %v", results, err)
	}
	if all, _ := o.Reset(); len(all) != 2 {
		t.Errorf("a new connection gets %v, want both", all)
	}
	o.Drop(key("a"))
	if all, _ := o.Reset(); len(all) != 1 {
		t.Errorf("after one went a new connection gets %v", all)
	}
}

func TestTakeWaitsUntilSomethingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() {
			_, events, err := o.Take(ctx)
			if err != nil {
				close(done)
				return
			}
			done <- len(events)
			if _, _, err := o.Take(ctx); err != nil {
				close(done)
			}
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it did not wait")
		default:
		}
		o.Event(probe.Event{Reason: probe.ReasonUnhealthy})
		if n := <-done; n != 1 {
			t.Errorf("%d events", n)
		}
		cancel()
		<-done
	})
}

func TestTheOldestEventsGoFirstWhenThereAreTooMany(t *testing.T) {
	o := New()
	for i := range maxEvents + 10 {
		o.Event(probe.Event{Message: fmt.Sprint(i)})
	}
	_, events := o.Reset()
	if len(events) != maxEvents || events[0].Message != "10" {
		t.Errorf("%d events from %s on", len(events), events[0].Message)
	}
}
