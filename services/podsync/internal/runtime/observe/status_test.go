package observe

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestARuntimeThatComesLateAndGoesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		r.rt.SetDown(true)
		time.Sleep(time.Minute)
		if r.sink.runtime().Ready {
			t.Error("ready though it is away")
		}
		r.rt.SetDown(false)
		time.Sleep(3 * time.Second)
		if last, seen := r.sink.runtime(), r.sink.wholes(); !last.Ready || seen != 1 || !r.obs.Runtime().Events {
			t.Errorf("after it came: %+v, seen %d", last, seen)
		}
		r.rt.SetNetworkReady(false)
		time.Sleep(11 * time.Second)
		if r.sink.runtime().NetworkReady {
			t.Error("the network is ready")
		}
		r.rt.SetNetworkReady(true)
		r.rt.SetDown(true)
		time.Sleep(2 * time.Second)
		_, c := r.start("u", nil)
		_ = r.rt.Exit(c, 1, "")
		if r.sink.runtime().Ready {
			t.Error("ready though it went")
		}
		r.rt.SetDown(false)
		time.Sleep(3 * time.Second)
		if r.state("u") != podstate.StateExited || r.sink.wholes() != 1 {
			t.Errorf("what happened meanwhile: %+v", r.sink.get("u"))
		}
	})
}
