package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestTheNodesOwnReasonIsKeptBeforeItIsActedUpon(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Stop, w.s.StopUnkept = &podstate.Stop{Reason: "Evicted", Message: "low"}, true
	keep := podstate.Key{Kind: podstate.KeepStop}
	out := Plan(w.s)
	if len(out.Actions) != 1 || out.Actions[0].Key != keep || out.Actions[0].Stop != w.s.Stop || out.Terminating {
		t.Fatalf("actions %+v", out.Actions)
	}
	w.s.InFlight[keep] = out.Actions[0]
	w.end(w.newest("a"), 1)
	if out = Plan(w.s); len(out.Actions) != 0 || out.Terminating {
		t.Errorf("while it is being kept: %+v", out.Actions)
	}
	delete(w.s.InFlight, keep)
	w.s.Failures[keep] = Failure{Count: 1, At: w.s.Now, Message: "no space left on device"}
	if out = Plan(w.s); !out.Terminating {
		t.Error("a full disk holds the end up")
	}
	delete(w.s.Failures, keep) // as when the spec changes
	w.s.EndSince = w.s.Now
	if out = Plan(w.s); out.Status.Reason != "Evicted" {
		t.Errorf("the reason that was acted upon is forgotten: %+v", out.Status)
	}
	w.s.StopUnkept = false
	if w.settle(time.Minute); w.out.Status.Phase != v1.PodFailed || w.out.Status.Reason != "Evicted" {
		t.Errorf("status %+v", w.out.Status)
	}
}

func TestVolumesThatCouldNotBeTakenDownAreTriedAtOnceWhenTheirDriverComes(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	teardown := podstate.Key{Kind: podstate.TeardownVolumes}
	w.s.Failures[teardown] = Failure{Count: 8, At: w.s.Now, Message: "driver name d not found in the list of registered CSI drivers"}
	w.s.ObjectsChanged()
	if f := w.s.Failures[teardown]; !f.At.IsZero() || f.Count != 8 {
		t.Errorf("after the driver came the failure is %+v", f)
	}
}
