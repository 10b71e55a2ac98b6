package observe

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// hanging is a runtime whose stream of events stands and says nothing while hung.
func hanging(t *testing.T, hung *atomic.Bool) *rig {
	r := newRig(t, fakecri.Config{Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
		return fakecri.Fault{DropEvent: m == "event" && hung.Load()}
	}})
	time.Sleep(5 * time.Second)
	return r
}

func TestAStreamThatHangsIsNoticedAndReplacedByListsUntilItProvesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		r := hanging(t, &hung)
		_, a := r.start("a", nil)
		_, b := r.start("b", nil)
		_, c := r.start("c", nil)
		synctest.Wait()
		hung.Store(true)
		time.Sleep(10 * time.Second)
		_ = r.rt.Exit(a, 1, "")
		time.Sleep(67 * time.Second) // the slow list finds it
		if r.state("a") != podstate.StateExited {
			t.Fatal("the slow list has not found an exit")
		}
		time.Sleep(lateEvent)
		if r.obs.Runtime().Events {
			t.Fatal("a dead stream counts as working")
		}
		_ = r.rt.Exit(b, 1, "")
		time.Sleep(1200 * time.Millisecond)
		if r.state("b") != podstate.StateExited {
			t.Fatal("lists are still slow")
		}
		hung.Store(false)
		_ = r.rt.Exit(c, 1, "")
		synctest.Wait()
		if r.state("c") != podstate.StateExited || !r.obs.Runtime().Events {
			t.Fatal("the new stream has proven itself and does not count")
		}
		before := r.rt.Calls()["ListContainers"]
		time.Sleep(30 * time.Second)
		if n := r.rt.Calls()["ListContainers"] - before; n > 1 {
			t.Errorf("%d lists in 30 s though events come", n)
		}
	})
}

func TestOurOwnActionsTestTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		r := hanging(t, &hung)
		time.Sleep(10 * time.Second)
		hung.Store(true)
		sb, c := r.start("u", nil)
		if err := r.obs.SawContainer(t.Context(), c, sb); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lateEvent + time.Second)
		if r.obs.Runtime().Events {
			t.Error("the stream has not told of what we did and counts as working")
		}
	})
}

func TestAnEventThatComesLateIsNoReasonForDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
			if m == "event" {
				return fakecri.Fault{DelayEvent: 2 * time.Second}
			}
			return fakecri.Fault{}
		}})
		time.Sleep(5 * time.Second)
		sb, c := r.start("u", nil)
		if err := r.obs.SawContainer(t.Context(), c, sb); err != nil {
			t.Fatal(err)
		}
		before := r.rt.Calls()["GetContainerEvents"]
		time.Sleep(10 * time.Second)
		if after := r.rt.Calls()["GetContainerEvents"]; !r.obs.Runtime().Events || after != before {
			t.Errorf("events %v, stream opened %d more times", r.obs.Runtime().Events, after-before)
		}
	})
}

func TestWhatWasThereBeforeTheStreamIsNoReasonForDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		r.rt.SetDown(true)
		time.Sleep(time.Second)
		r.start("u", nil)
		r.rt.SetDown(false)
		time.Sleep(20 * time.Second)
		if r.state("u") != podstate.StateRunning || !r.obs.Runtime().Events {
			t.Errorf("state %v, events %v", r.state("u"), r.obs.Runtime().Events)
		}
	})
}
