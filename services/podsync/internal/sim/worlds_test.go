package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// worlds adds to a share of the scenarios what real nodes have now and then:
// networks that cannot be taken down, a podsync that is away for longer than any
// grace period, sandboxes that die alone, a webhook that is wrong, a disk that is
// busy. It takes its choices from a source of
// its own.
func (s *scenario) worlds(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 7))
	when := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
	if rng.IntN(3) == 0 {
		s.badTeardowns = []float64{.2, .5, .9}[rng.IntN(3)]
	}
	if rng.IntN(6) == 0 {
		s.absence(rng)
	}
	for range rng.IntN(3) * rng.IntN(2) {
		pick := rng.IntN(100)
		s.add(when(), "the process of a sandbox dies", func(w *world) { w.killPause(pick) })
	}
	if rng.IntN(8) == 0 {
		s.completions(rng)
	}
	if rng.IntN(4) == 0 {
		s.losses(rng)
	}
	for i, shape := range more {
		if rng.IntN(10) > 0 {
			continue
		}
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(shape.name, fmt.Sprint("m", i), &grace, rng)
		s.put(sub)
		created := s.life(rng, sub)
		switch shape.name {
		case told:
			s.changesOf(sub, created, rng)
		case longInit:
			s.add(created+time.Duration(2+rng.IntN(20))*time.Second, "change the image of the init container of "+sub.pod.Name, func(w *world) { w.changeInitImage(sub) })
		}
	}
	if rng.IntN(drainEvery) == 0 {
		s.drain(when()/2, s.noisy/2+when()/2)
	}
	if rng.IntN(5) == 0 {
		s.misleads(when(), time.Duration(1+rng.IntN(40))*time.Second)
	}
	if rng.IntN(5) == 0 {
		s.sticks(when(), time.Duration(5+rng.IntN(60))*time.Second)
	}
}

// sticks has the runtime remove no container for a while: a root filesystem is busy.
func (s *scenario) sticks(at, long time.Duration) {
	s.add(at, "no container can be removed", func(w *world) { w.stuck.Store(true) })
	s.add(at+long, "they can again", func(w *world) { w.stuck.Store(false) })
}

// misleads has the apiserver say of each pod whose status is written that there is none,
// as a webhook does that does not find something of its own.
func (s *scenario) misleads(at, long time.Duration) {
	s.add(at, "a webhook finds no pod", func(w *world) { w.misled.Store(true) })
	s.add(at+long, "it finds them", func(w *world) { w.misled.Store(false) })
}

// drainEvery is how many seeds share one that drains a node full of pods.
const drainEvery = 500

// losses are images that vanish: at any time, and between the pull and the start
// of a pod's containers.
func (s *scenario) losses(rng *rand.Rand) {
	for _, a := range slices.Clone(s.acts) {
		if strings.HasPrefix(a.what, "create ") && rng.IntN(2) == 0 {
			s.add(a.at+time.Duration(rng.IntN(5000))*time.Millisecond, "an image vanishes", func(w *world) { w.rt.LoseImage(goodImage) })
		}
	}
	s.add(time.Duration(rng.Int64N(int64(s.noisy))), "an image vanishes", func(w *world) { w.rt.LoseImage(newImage) })
}

// longInit is the shape of a pod whose init container takes its time.
const longInit = "long init"

func (w *world) changeInitImage(sub *subject) {
	w.update(sub, func(pod *v1.Pod) { pod.Spec.InitContainers[0].Image = newImage })
}

// absence is a podsync that is away for longer than the grace periods of the pods
// that are deleted meanwhile.
func (s *scenario) absence(rng *rand.Rand) {
	at := time.Duration(rng.Int64N(int64(s.noisy)))
	long := time.Duration(35+rng.IntN(60)) * time.Second
	s.add(at, fmt.Sprint("podsync is killed, and away for ", long), func(w *world) { w.away(long) })
	for _, sub := range s.subjects {
		if rng.IntN(2) == 0 {
			s.add(at+time.Duration(rng.Int64N(int64(5*time.Second))), "delete "+sub.pod.Name+" while podsync is away", func(w *world) { w.remove(sub, -1) })
		}
	}
}

// more are shapes of pods that a share of the scenarios has besides its others.
var more = []shape{
	{name: "hooks in order", make: func(m *maker) {
		for range 3 {
			c := m.main(m.forever())
			c.Lifecycle = &v1.Lifecycle{PostStart: handler(postStart)}
			m.hooks[c.Name] = fakecri.ExecResult{After: m.short()}
		}
		m.spec.Containers[0].Lifecycle.PreStop = handler(preStop)
	}},
	{name: "ends late", make: func(m *maker) {
		for range 2 {
			c := m.main(fakecri.Script{OnTerm: fakecri.Term{After: m.grace() * 8 / 10}})
			c.Lifecycle = &v1.Lifecycle{PreStop: handler(preStop)}
			m.hooks[c.Name] = fakecri.ExecResult{After: m.grace() / 10}
		}
	}},
	{name: "killed by a probe", make: func(m *maker) { killedByProbe(m, false) }},
	{name: told, needsAPI: true, make: tellsItself},
	{name: longInit, make: func(m *maker) {
		m.before(fakecri.Sequence(fakecri.Run{For: 5*time.Second + 3*m.short()}))
		m.main(m.forever())
	}},
	{name: "killed by its startup probe", make: func(m *maker) { killedByProbe(m, true) }},
}
