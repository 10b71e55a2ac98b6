package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// drained is the shape of a pod that needs most of its grace period to end, and
// ends within it.
const drained = "drained"

// aNodeFull is how many pods are drained at once.
const aNodeFull = 110

func (m *maker) drain() {
	m.main(fakecri.Script{OnTerm: fakecri.Term{After: 8 * time.Second}})
}

// drain adds a node full of pods that are deleted all at once.
func (s *scenario) drain(created, deleted time.Duration) {
	grace := int64(10)
	for i := range aNodeFull {
		sub := newPod(drained, fmt.Sprint("n", i), &grace, rand.New(rand.NewPCG(uint64(i), 8)))
		s.put(sub)
		s.add(created, "create "+sub.pod.Name+" ("+drained+")", func(w *world) { w.create(sub) })
		s.add(deleted, "delete "+sub.pod.Name, func(w *world) { w.remove(sub, -1) })
	}
	slices.SortStableFunc(s.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	s.noisy = max(s.noisy, deleted+30*time.Second)
}

// drains is a scenario of nothing but a drain.
func drains(int64) *scenario {
	s := &scenario{byName: map[string]*subject{}}
	s.drain(0, time.Minute)
	return s
}

// inTime says whether a container was killed by podsync that would have ended
// within its grace period: a deletion leaves it all of that, however many others
// end with it.
func (j *judge) inTime(f *facts, signal string) bool {
	return f.sub.shape != drained || signal != "KILL"
}

// inPlaces lets only so many stops run at once; what one waits for its place is
// missing from its grace period.
func inPlaces(n int) func(*world, string, any, any, func() error) error {
	var places chan struct{}
	var once sync.Once
	return func(_ *world, _ string, req, _ any, do func() error) error {
		stop, ok := req.(*runtimeapi.StopContainerRequest)
		if !ok {
			return do()
		}
		once.Do(func() { places = make(chan struct{}, n) }) // in the bubble
		began := time.Now()
		places <- struct{}{}
		defer func() { <-places }()
		stop.Timeout = max(2, stop.GetTimeout()-int64(time.Since(began)/time.Second))
		return do()
	}
}

func TestADrainKillsNobodyWhoEndsInTime(t *testing.T) {
	asksTheJudge(t)
	t.Run("as it is", func(t *testing.T) { finds(t, sabotage{scenario: drains}, "") })
	t.Run("waiting for a place takes from the grace period", func(t *testing.T) {
		finds(t, sabotage{scenario: drains, cri: inPlaces(8)}, "was killed though it ends within its grace period")
	})
}
