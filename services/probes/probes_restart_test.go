package probes

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestARestartOfPodsyncGetsAllHeldResultsInTheFirstFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		n.server.Stop()
		settle(30 * time.Second) // podsync is away; nothing may be lost
		// The new podsync does not know the container yet at first.
		g := &fakePodsync{epoch: 2, exec: codes("-")}
		n.start(g)
		settle(5 * time.Second)
		g.mu.Lock()
		if len(g.firsts) != 1 || len(g.firsts[0].GetResults()) != 1 || g.firsts[0].GetResults()[0].GetOutcome() != success || g.firsts[0].GetEpoch() != 7 {
			t.Errorf("first frames %v", g.firsts)
		}
		g.mu.Unlock()
		g.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		settle(time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("the new podsync knows %q: what was found before must go on", got)
		}
	})
}

func TestAResultThatPodsyncDoesNotHoldIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		n.server.Stop()
		// It heard the result before it knew the target, and dropped it.
		g := &fakePodsync{epoch: 2, exec: codes("+"), snapshot: f.snapshot}
		n.start(g)
		settle(5 * time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("podsync knows %q", got)
		}
		held := execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })
		g.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{held}}
		settle(time.Second)
		if got := g.seen(); got != "readiness:success@a" {
			t.Errorf("what podsync holds already was sent again: %q", got)
		}
	})
}

func TestAProbeThatDoesNotComeBackIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		for epoch, want := range []int{2: 1, 3: 1, 4: 1, 5: 0} {
			if epoch < 2 {
				continue
			}
			n.server.Stop()
			settle(time.Second)
			g := &fakePodsync{epoch: uint64(epoch), exec: codes("+")}
			n.start(g)
			settle(4 * time.Minute)
			g.mu.Lock()
			if len(g.firsts) != 1 || len(g.firsts[0].GetResults()) != want {
				t.Errorf("epoch %d: first frames %v, want %d results", epoch, g.firsts, want)
			}
			g.mu.Unlock()
		}
		if got := n.series("prober_probe_total"); len(got) != 0 {
			t.Errorf("its series stay: %v", got)
		}
	})
}

func TestARestartOfProbesFlipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("-"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })}}
		n := newNode(t, f)
		defer n.close()
		for range 5 {
			settle(2 * time.Second)
			n.stop()
			n.startProbes()
		}
		if got := f.seen(); got != "" {
			t.Errorf("restarts alone reported %q", got)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, first := range f.firsts {
			if len(first.GetResults()) != 0 {
				t.Errorf("a process that knew nothing reported %v", first.GetResults())
			}
		}
	})
}

func TestARestartOfProbesGoesOnCounting(t *testing.T) {
	for name, tc := range map[string]struct {
		typ                podsyncv1.ProbeType
		last               podsyncv1.ProbeOutcome
		successes, answers string
		want               string
	}{
		"failures of what was alive":      {liveness, success, "", "-", "liveness:success-1@a liveness:success-2@a liveness:failure@a"},
		"failures of what nobody knows":   {liveness, unknown, "", "-", "liveness:unspecified-1@a liveness:unspecified-2@a liveness:failure@a"},
		"a success between begins anew":   {liveness, success, "", "-+--+", "liveness:success-1@a liveness:success@a liveness:success-1@a liveness:success-2@a liveness:success@a"},
		"successes of what was not ready": {readiness, podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE, "3", "+", "readiness:failure+1@a readiness:failure+2@a readiness:success@a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakePodsync{epoch: 1, exec: codes(tc.answers), snapshot: []*podsyncv1.ProbeTarget{
					execTarget(tc.typ, "a", func(t *podsyncv1.ProbeTarget) {
						t.LastOutcome, t.ContainerStartTime = tc.last, timestamppb.New(time.Now().Add(-time.Hour))
						if tc.successes != "" {
							t.SuccessThreshold = 3
						}
					})}}
				n := newNode(t, f)
				defer n.close()
				for range 5 {
					settle(10 * time.Second) // one attempt in each life
					n.stop()
					f.restarted()
					n.startProbes()
				}
				if got := f.seen(); got != tc.want {
					t.Errorf("podsync was told %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestExecProbesWaitQuietlyWhilePodsyncIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(11 * time.Second)
		n.server.Stop()
		settle(2 * time.Minute)
		g := &fakePodsync{epoch: 2, exec: codes("+"), snapshot: f.snapshot}
		n.start(g)
		settle(time.Minute)
		if got := g.eventTexts(); len(got) != 0 {
			t.Errorf("events %q", got)
		}
		if g.execCount() < 5 {
			t.Errorf("only %d attempts in a minute after podsync came back", g.execCount())
		}
	})
}
