package sim

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// evicted is a scenario of a pod that the node evicts after 10 s; then is what happens
// a moment later.
func evicted(shape string, grace time.Duration, death deathOf, then func(w *world)) func(int64) *scenario {
	return with(with(only(shape, 0), 10*time.Second, "the node evicts p0", func(w *world) { w.evict(w.scenario.subjects[0], grace, death) }),
		10*time.Second+time.Millisecond, "then", then)
}

func nothing(*world) {}

// evictedAgain is a scenario of a pod that takes no signal, is evicted after 10 s with
// its own 30 s, and after 20 s with less.
func evictedAgain(grace time.Duration) func(int64) *scenario {
	return with(evicted("stubborn", ownGrace, survives, nothing), 20*time.Second, "the node evicts p0 once more", func(w *world) { w.evict(w.scenario.subjects[0], grace, survives) })
}

// forgetsStops takes away what podsync keeps of the pods that the node ends.
func forgetsStops(w *world) { w.must(os.Remove(filepath.Join(w.dir, "root", "polylet", "stops.json"))) }

func TestEveryBrokenPromiseOfEvictionsIsFound(t *testing.T) {
	asksTheJudge(t)
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"an eviction", sabotage{scenario: evicted("forever", 5*time.Second, survives, nothing)}, ""},
		{"an eviction at once", sabotage{scenario: evicted("stubborn", 0, survives, nothing)}, ""},
		{"an eviction of what takes no signal", sabotage{scenario: evicted("stubborn", ownGrace, survives, nothing)}, ""},
		{"an eviction of what has no image", sabotage{scenario: evicted("wrong image", ownGrace, survives, nothing)}, ""},
		{"an eviction of what crashes", sabotage{scenario: evicted("crasher", ownGrace, survives, nothing)}, ""},
		{"an eviction in the init containers", sabotage{scenario: evicted(longInit, ownGrace, survives, nothing)}, ""},
		{"an eviction, and podsync dies before it answers", sabotage{scenario: evicted("stubborn", ownGrace, diesBeforeAnswer, nothing)}, ""},
		{"an eviction, and podsync dies when it has answered", sabotage{scenario: evicted("stubborn", ownGrace, diesAfterAnswer, nothing)}, ""},
		{"an eviction, and a deletion", sabotage{scenario: evicted("stubborn", ownGrace, survives, func(w *world) { w.remove(w.scenario.subjects[0], 20) })}, ""},
		{"an eviction of what is being deleted", sabotage{
			scenario: with(only("stubborn", 10*time.Second), 15*time.Second, "the node evicts p0", func(w *world) { w.evict(w.scenario.subjects[0], 5*time.Second, survives) }),
		}, ""},
		{"an eviction, and the machine reboots", sabotage{scenario: evicted("stubborn", ownGrace, diesAfterAnswer, func(w *world) { w.reboot(true) })}, ""},
		{"an eviction with less time", sabotage{scenario: evictedAgain(3 * time.Second)}, ""},
		{"an eviction with more time", sabotage{scenario: evictedAgain(10 * time.Minute)}, ""},
		{"an eviction of a critical pod", sabotage{scenario: evicted(critical, ownGrace, survives, nothing)}, ""},
		{"room that is made", sabotage{scenario: with(only("job", 0), 20*time.Second, "the node needs room", func(w *world) { w.reclaim() })}, ""},

		{"a controller whose pods are evicted again and again", sabotage{scenario: edgeOf(false)}, ""},
		{"such a controller, and podsync dies", sabotage{scenario: with(edgeOf(false), 25*time.Second, "podsync is killed", func(w *world) { w.crash("SIGKILL") })}, ""},
		{"such a controller without a back-off", sabotage{scenario: edgeOf(true)}, "before the back-off was over of a controller whose pods are evicted again and again"},

		{"an eviction that is forgotten", sabotage{scenario: evicted("stubborn", ownGrace, diesAfterAnswer, forgetsStops)}, "pod p0 (stubborn) should have been evicted"},
		{"an eviction that a deletion forgets", sabotage{scenario: evicted("stubborn", ownGrace, diesAfterAnswer, func(w *world) {
			forgetsStops(w)
			w.remove(w.scenario.subjects[0], 1)
		})}, "is not that of one that should have been evicted"},
		{"a container that starts again after its pod was evicted", sabotage{scenario: evicted("stubborn", ownGrace, survives, nothing), cri: again("StopContainer", func(w *world, _ any) {
			makes(w, 7)
		})}, "was made after the node had evicted it"},
		{"an eviction that leaves no time", sabotage{scenario: evicted("stubborn", 20*time.Second, survives, nothing), cri: hurries(3)}, "because the node evicts it, 17s before its grace period ended"},
		{"a second eviction that leaves no time", sabotage{scenario: evictedAgain(10 * time.Second), cri: hurries(3)}, "because the node evicts it, "},
		{"an eviction that ends another pod as well", sabotage{
			scenario: with(pair("forever", "forever"), 20*time.Second, "the node evicts p0", func(w *world) { w.evict(w.scenario.subjects[0], ownGrace, survives) }),
			cri:      again("StopContainer", stopsAll),
		}, "was ended without a reason"},
		{"an eviction of a pod that must stay", sabotage{scenario: with(evicted("forever", ownGrace, survives, nothing), 5*time.Second, "p0 is critical", func(w *world) {
			w.scenario.subjects[0].shape = critical // as if podsync did not know
		})}, "was evicted though it is static or critical"},
		{"an eviction that nobody asked for", sabotage{scenario: only("forever", 0), cri: whenItRuns(`{"status":{"phase":"Failed","reason":"Evicted","message":"so"}}`)}, "was evicted, and nobody asked for it"},
		{"an eviction of another message", sabotage{scenario: evicted("forever", ownGrace, survives, nothing), api: rewrites(`"message":"evicted at`, `"message":"gone at`)}, "was evicted, and nobody asked for it"},
		{"an eviction without its reason", sabotage{scenario: evicted("forever", ownGrace, survives, nothing), api: rewrites(`"reason":"Evicted"`, `"reason":"Other"`)}, "pod p0 (forever) should have been evicted"},
		{"an eviction without its condition", sabotage{scenario: evicted("forever", ownGrace, survives, nothing), api: rewrites(`"TerminationByKubelet"`, `"Other"`)}, "was evicted, and its status does not say so"},
		{"an eviction that is refused", sabotage{scenario: evicted("stubborn", ownGrace, survives, func(w *world) {
			w.must(os.RemoveAll(filepath.Join(w.dir, "root", "polylet")))
			w.must(os.WriteFile(filepath.Join(w.dir, "root", "polylet"), nil, 0o600))
			w.evict(w.scenario.subjects[0], ownGrace, survives)
		})}, "pod p0 cannot be evicted"},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}

// edgeOf is a scenario of hogs of one controller; untold: podsync does not hear that the
// node is short of memory.
func edgeOf(untold bool) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := &scenario{noisy: time.Minute, byName: map[string]*subject{}}
		s.edge(0, 5, rand.New(rand.NewPCG(uint64(seed), 31)), untold)
		return s
	}
}

// hurries gives every stop only so many seconds.
func hurries(seconds int64) func(*world, string, any, any, func() error) error {
	return func(_ *world, _ string, req, _ any, do func() error) error {
		if stop, ok := req.(*runtimeapi.StopContainerRequest); ok {
			stop.Timeout = seconds
		}
		return do()
	}
}
