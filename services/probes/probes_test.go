package probes

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAReadyApplicationIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(10 * time.Millisecond)
		if got := f.seen(); got != "readiness:success@a" {
			t.Errorf("after 10 ms podsync knows %q", got)
		}
	})
}

func TestANewContainerIDBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{execTarget(readiness, "b", nil)}}
		settle(time.Second)
		if got := f.seen(); got != "readiness:success@a readiness:success@b" {
			t.Errorf("podsync knows %q", got)
		}
	})
}

func TestFailuresAreReportedAtTheThresholdWithTheKubeletsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("-"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(liveness, "a", func(t *podsyncv1.ProbeTarget) { t.LastOutcome = success })}}
		n := newNode(t, f)
		defer n.close()
		settle(25 * time.Second)
		if got := f.seen(); got != "liveness:success-1@a liveness:success-2@a" {
			t.Errorf("before the threshold podsync got %q", got)
		}
		settle(time.Hour)
		if got := f.seen(); got != "liveness:success-1@a liveness:success-2@a liveness:failure@a" {
			t.Errorf("podsync knows %q", got)
		}
		if got := f.execCount(); got != 3 {
			t.Errorf("%d attempts, want 3: it holds after the threshold", got)
		}
		want := "Unhealthy: Liveness probe failed: out"
		if got := f.eventTexts(); len(got) != 3 || got[0] != want {
			t.Errorf("events %q, want three times %q", got, want)
		}
	})
}

func TestErrorsAreTriedThreeTimesAndLeaveTheOutcomeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)},
			exec: func(int, *podsyncv1.ExecProbeRequest) (int32, error) {
				return 0, fmt.Errorf("%w: broken", rpcerr.ErrInternal)
			}}
		n := newNode(t, f)
		defer n.close()
		settle(12 * time.Second)
		if got := f.execCount(); got != 3 {
			t.Errorf("%d attempts in the tick, want 3", got)
		}
		want := "Unhealthy: Liveness probe errored and resulted in unknown state: internal error: broken"
		if got := f.eventTexts(); len(got) != 1 || got[0] != want {
			t.Errorf("events %q, want %q", got, want)
		}
		if f.seen() != "" || len(n.series("prober_probe_total")) != 0 {
			t.Errorf("errors were counted: %q %v", f.seen(), n.series("prober_probe_total"))
		}
	})
}

func TestACommandThatTimesOutIsAFailureWithTheKubeletsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)},
			exec: func(int, *podsyncv1.ExecProbeRequest) (int32, error) { return 0, fmt.Errorf("%w", rpcerr.ErrTimeout) }}
		n := newNode(t, f)
		defer n.close()
		settle(12 * time.Second)
		want := `Unhealthy: Liveness probe failed: command timed out: "check" timed out after 1s`
		if got := f.eventTexts(); len(got) != 1 || got[0] != want {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

func TestAPodsyncThatKnowsNoExecProbeIsToldTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(12 * time.Second)
		want := "Unhealthy: Liveness probe failed: by check"
		if got := f.eventTexts(); len(got) == 0 || got[0] != want {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

func TestStartupSuccessOpensTheGateForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shut := func(t *podsyncv1.ProbeTarget) { t.Started = false }
		f := &fakePodsync{epoch: 1, exec: codes("--+"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(startup, "a", shut), execTarget(readiness, "a", shut), execTarget(liveness, "a", shut)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		if got := f.seen(); got != "startup:success@a" {
			t.Fatalf("podsync knows %q", got)
		}
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{
			execTarget(startup, "a", nil), execTarget(readiness, "a", nil), execTarget(liveness, "a", nil)}}
		settle(10 * time.Millisecond)
		if got := f.seen(); got != "startup:success@a readiness:success@a" {
			t.Errorf("right after the gate opened podsync knows %q", got)
		}
		settle(12 * time.Second)
		if got := f.seen(); !strings.Contains(got, "liveness:success@a") {
			t.Errorf("a period later podsync knows %q", got)
		}
	})
}

// windows counts what lies in each 10 ms since begin.
func windows(begin time.Time, at []time.Time) (most int, inSecond map[int]int) {
	in := map[time.Duration]int{}
	inSecond = map[int]int{}
	for _, a := range at {
		in[a.Sub(begin)/(10*time.Millisecond)]++
		inSecond[int(a.Sub(begin)/time.Second)]++
	}
	for _, n := range in {
		most = max(most, n)
	}
	return most, inSecond
}

// All of them became known in the same moment, which is the worst case: a node
// whose probes process starts for the first time, or comes back.
func TestFiveHundredContainersProbedOnceASecondAreSpreadEvenly(t *testing.T) {
	const containers, seconds = 500, 10
	// Five are due in 10 ms when they lie perfectly even.
	const mostInWindow = 20
	for name, outcome := range map[string]podsyncv1.ProbeOutcome{"for the first time": unknown, "after a restart of probes": success} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakePodsync{epoch: 1, exec: codes("+")}
				for i := range containers {
					f.snapshot = append(f.snapshot, execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) {
						t.Key.PodUid, t.PeriodSeconds, t.LastOutcome = fmt.Sprintf("uid-%d", i), 1, outcome
					}))
				}
				began := time.Now()
				n := newNode(t, f)
				defer n.close()
				settle(seconds * time.Second)
				f.mu.Lock()
				most, inSecond := windows(began, f.execs)
				f.mu.Unlock()
				if most > mostInWindow {
					t.Errorf("%d probes began within 10 ms, want %d at most", most, mostInWindow)
				}
				for s := 2; s < seconds-1; s++ {
					if inSecond[s] != containers {
						t.Errorf("%d probes began in second %d, want one of each container", inSecond[s], s)
					}
				}
			})
		})
	}
}

func TestNothingHappensWithoutTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Removed: []*podsyncv1.ProbeKey{f.snapshot[0].GetKey()}}
		settle(24 * time.Hour)
		if got := f.execCount(); got != 0 {
			t.Errorf("%d attempts of a probe that is gone", got)
		}
		if got := n.list(); len(got) != 0 {
			t.Errorf("still listed: %v", got)
		}
	})
}

func TestListProbesShowsHowEachStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+"), snapshot: []*podsyncv1.ProbeTarget{
			execTarget(readiness, "a", nil), execTarget(liveness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(time.Second)
		got := n.list()
		if len(got) != 2 || got[0].GetTarget().GetKey().GetType() != liveness || got[0].GetOutcome() != unknown ||
			got[1].GetOutcome() != success || !got[1].GetLastAttemptOk() || got[1].GetMessage() != "out" ||
			got[1].GetNextAttemptTime().AsTime().Before(time.Now()) || got[1].GetTarget().GetExec().GetCommand()[0] != "check" {
			t.Errorf("listed %v", got)
		}
	})
}

func TestSeriesCountAttemptsAndGoWithTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePodsync{epoch: 1, exec: codes("+-"), snapshot: []*podsyncv1.ProbeTarget{execTarget(readiness, "a", nil)}}
		n := newNode(t, f)
		defer n.close()
		settle(25 * time.Second)
		got := n.series("prober_probe_total")
		if got["successful"] != 1 || got["failed"] != 2 {
			t.Errorf("prober_probe_total %v, want 1 successful and 2 failed", got)
		}
		if got := n.series("prober_probe_duration_seconds"); got[""] != 1 {
			t.Errorf("prober_probe_duration_seconds %v, want one observation", got)
		}
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Removed: []*podsyncv1.ProbeKey{f.snapshot[0].GetKey()}}
		settle(time.Second)
		if got := n.series("prober_probe_total"); len(got) != 0 {
			t.Errorf("series of a probe that is gone: %v", got)
		}
	})
}

func (n *node) list() []*probesv1.ProbeState {
	n.t.Helper()
	res, err := n.service.server.ListProbes(n.t.Context(), &probesv1.ListProbesRequest{Namespace: "ns"})
	if err != nil {
		n.t.Fatal(err)
	}
	return res.GetProbes()
}

// series returns a family's values by the label result.
func (n *node) series(name string) map[string]float64 {
	n.t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					label = l.GetValue()
				}
			}
			out[label] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestNoKubernetesClientIsLinked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list is not available here: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "k8s.io/") && !strings.HasPrefix(dep, "k8s.io/klog/") {
			t.Errorf("probes links %s", dep)
		}
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{}, Deps{})
	for _, want := range []string{"Podsync", "Metrics", "Epoch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if got := userAgent("v1.36.6"); got != "kube-probe/1.36" {
		t.Errorf("user agent %q", got)
	}
}
