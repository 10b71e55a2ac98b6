package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// TestALineOfTheLogIsShortWhateverFailed: a pod's spec may say a megabyte that an
// error repeats, at each attempt with other words around it.
func TestALineOfTheLogIsShortWhateverFailed(t *testing.T) {
	var logged []string
	w := &worker{log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}
	for _, message := range []string{"first " + strings.Repeat("é", 1<<20), "no such directory"} {
		w.failed(podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}}, plan.Noted{News: true, Failure: plan.Failure{Reason: "FailedMount", Message: message}})
	}
	if len(logged) != 2 || len(logged[0]) > 2*mostLogged || !strings.Contains(logged[0], "first é") || !strings.Contains(logged[1], "no such directory") {
		t.Errorf("%d lines, the first of %d bytes: %.200q", len(logged), len(logged[0]), logged)
	}
}

// A failure is kept as long as it holds, which for a container that is never created is as long
// as its pod.
func TestWhatIsKeptOfAFailureIsBounded(t *testing.T) {
	w := &worker{}
	long := errors.New("subPath " + strings.Repeat("x", 1<<20))
	volumes := podstate.VolumeErrors{{Volume: "v", Err: long}}
	for _, err := range []error{long, volumes} {
		got := w.planned(outcome{action: podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}}, err: err}, time.Now())
		for name, f := range map[string]plan.Failure{"all": *got.Failure, "a volume": got.Volumes["v"]} {
			if len(f.Message) > mostSaid+8 || err != long && !strings.Contains(f.Message, "subPath x") {
				t.Errorf("%s: %d bytes, %.40q", name, len(f.Message), f.Message)
			}
		}
	}
}

// A sandbox that cannot be made has a new id at each try, every quarter of a minute.
func TestAFailureThatNamesAnotherSandboxEachTimeIsLoggedOnce(t *testing.T) {
	var logged []string
	sandbox := podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}}
	w := &worker{log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}
	w.state.Failures = map[podstate.Key]plan.Failure{}
	fail := func(text string) {
		o := outcome{action: sandbox, err: reason.New("CreatePodSandboxError", errors.New(text))}
		w.failed(sandbox, w.state.Ended(w.planned(o, time.Now())))
	}
	for _, id := range []string{"445fb914df7c0593", "25662432f6abd14f", "144302396e28cf8a"} {
		fail("network for sandbox " + id + ": no address left")
	}
	fail("network for sandbox 6fc340a0051bf12d: no plugin")
	if len(logged) != 2 || !strings.Contains(logged[0], "445fb914df7c0593") || !strings.Contains(logged[1], "no plugin") {
		t.Errorf("logged: %q", logged)
	}
	if got := w.state.Failures[sandbox.Key]; !strings.Contains(got.Message, "6fc340a0051bf12d") {
		t.Errorf("the newest is kept as %+v", got)
	}
}
