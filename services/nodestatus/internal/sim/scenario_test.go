package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/nodestatus"
)

const mi = 1 << 20

// scenario is what happens in a simulation: a node, its pods, and what is done when.
type scenario struct {
	machine *machine
	pods    []*pod
	acts    []act
	// long is how long it lasts; in its last part nothing is wrong.
	long time.Duration
	// thresholds are those of the configuration.
	thresholds               []threshold
	transition, longestGrace time.Duration
	// groups are how pods end when the machine goes down.
	groups []nodestatus.ShutdownGroup
	// gathers is for how long podsync does not know all its pods after its start.
	gathers time.Duration
}

// act is something that happens.
type act struct {
	at   time.Duration
	what string
	do   func(w *world)
}

// threshold is one of the configuration: a number, or a percentage of what there is.
type threshold struct {
	signal string
	number, percent,
	// more is what has to be reclaimed beyond it at least.
	more uint64
	soft  bool
	grace time.Duration
}

func (s *scenario) add(at time.Duration, what string, do func(w *world)) {
	s.acts = append(s.acts, act{at, what, do})
}

// config is the configuration of the scenario's node.
func (s *scenario) config() nodestatus.Config {
	cfg := nodestatus.Config{
		NodeName: nodeName, RegisterNode: true, Port: 10250, MaxPods: 110, NodeStatusMaxImages: 50, PodsEnforced: s.machine.capacity[podsMemory] > 0,
		EvictionHard: map[string]string{}, EvictionSoft: map[string]string{}, EvictionSoftGracePeriod: map[string]string{}, EvictionMinimumReclaim: map[string]string{},
		EvictionPressureTransitionPeriod: s.transition, EvictionMaxPodGracePeriod: s.longestGrace,
		ShutdownGroups:            s.groups,
		NodeStatusUpdateFrequency: 15 * time.Second, NodeStatusReportFrequency: 5 * time.Minute, NodeLeaseDuration: 400 * time.Second,
	}
	for _, t := range s.thresholds {
		text := fmt.Sprintf("%d%%", t.percent)
		if t.percent == 0 {
			text = fmt.Sprint(t.number)
		}
		if t.more > 0 {
			cfg.EvictionMinimumReclaim[t.signal] = fmt.Sprint(t.more)
		}
		if t.soft {
			cfg.EvictionSoft[t.signal], cfg.EvictionSoftGracePeriod[t.signal] = text, t.grace.String()
		} else {
			cfg.EvictionHard[t.signal] = text
		}
	}
	return cfg
}

// marks are the thresholds in numbers.
func (s *scenario) marks() (out []*mark) {
	for _, t := range s.thresholds {
		k := &mark{signal: t.signal, r: s.machine.resourceOf(t.signal), need: t.number, soft: t.soft, grace: t.grace}
		if t.percent > 0 {
			k.need = uint64(float64(s.machine.capacity[k.r]) * float64(float32(t.percent)/100))
		}
		k.enough = k.need + t.more
		out = append(out, k)
		if t.signal == "memory.available" && !t.soft && s.machine.capacity[podsMemory] > 0 {
			of := *k
			of.signal, of.r = "allocatableMemory.available", podsMemory
			if t.percent > 0 {
				of.need = uint64(float64(s.machine.capacity[podsMemory]) * float64(float32(t.percent)/100))
			}
			of.enough = of.need + t.more
			out = append(out, &of)
		}
	}
	return out
}

// maker draws a scenario.
type maker struct {
	*scenario
	rng   *rand.Rand
	noisy time.Duration
	made  int
}

func newScenario(seed int64) *scenario {
	m := &maker{scenario: &scenario{}, rng: rand.New(rand.NewPCG(uint64(seed), 1)), noisy: 15 * time.Minute}
	m.node()
	for range 3 + m.rng.IntN(7) {
		m.pods = append(m.pods, m.pod())
	}
	incidents := m.goesDown()
	for range 3 + m.rng.IntN(8) {
		incidents = append(incidents, m.when())
		m.incident(incidents[len(incidents)-1])
	}
	for range m.rng.IntN(5) {
		p := m.pod()
		m.add(m.when(), "another pod "+p.name, func(w *world) { w.add(p) })
	}
	for range m.rng.IntN(6) {
		at := m.when()
		if m.rng.IntN(3) > 0 { // What goes wrong when something is short matters more.
			at = max(0, pick(m, incidents...)+time.Duration(m.rng.Int64N(int64(20*time.Second)))-10*time.Second)
		}
		m.fault(at)
	}
	m.add(m.noisy, "nothing is wrong any more", func(w *world) { w.set(func() { w.calmLocked() }) })
	m.long = m.noisy + m.transition + 4*time.Minute
	slices.SortStableFunc(m.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return m.scenario
}

func (m *maker) when() time.Duration {
	return time.Duration(m.rng.Int64N(int64(m.noisy - 3*time.Minute)))
}

func pick[T any](m *maker, of ...T) T { return of[m.rng.IntN(len(of))] }

// node draws a node: its disks, and what it is to keep.
func (m *maker) node() {
	m.machine = &machine{layout: pick(m, together, together, imagesApart, layersApart)}
	m.machine.capacity = [goods]uint64{memory: 10000 * mi, pids: 10000, nodeBytes: 100000 * mi, nodeInodes: 1e6}
	m.machine.capacity[podsMemory] = pick(m, 0, 0, 6000*mi, 8000*mi, 8700*mi, uint64(9300*mi)) // The machine has 9000 beside what is no pod.
	if m.machine.layout != together {
		m.machine.capacity[imageBytes], m.machine.capacity[imageInodes] = 60000*mi, 1e6
	}
	m.machine.other = [goods]uint64{memory: 1000 * mi, pids: 300, nodeBytes: 20000 * mi, nodeInodes: 1e5, imageBytes: 10000 * mi, imageInodes: 1e5}
	m.machine.images = pick(m, 0, 2000*mi, uint64(5000*mi))
	m.thresholds = []threshold{
		{signal: "memory.available", number: pick[uint64](m, 0, 500*mi), percent: 5},
		{signal: "nodefs.available", percent: 10},
		{signal: "nodefs.inodesFree", percent: 5},
		{signal: "imagefs.available", percent: 15},
		{signal: "pid.available", percent: 10},
	}
	if m.thresholds[0].number > 0 {
		m.thresholds[0].percent = 0
	}
	for _, soft := range []threshold{{signal: "memory.available", percent: 12}, {signal: "nodefs.available", percent: 20}, {signal: "pid.available", percent: 20}} {
		if m.rng.IntN(3) == 0 {
			soft.soft, soft.grace = true, pick(m, 10*time.Second, 30*time.Second, 90*time.Second)
			m.thresholds = append(m.thresholds, soft)
		}
	}
	reclaim := map[string]uint64{"memory.available": m.some(3) / 2 * 200 * mi, "nodefs.available": m.some(3) / 2 * 3000 * mi}
	for i := range m.thresholds {
		m.thresholds[i].more = reclaim[m.thresholds[i].signal]
	}
	m.transition = pick(m, 30*time.Second, time.Minute, 5*time.Minute)
	m.longestGrace = pick(m, 0, 5*time.Second, 20*time.Second, time.Minute)
	m.gathers = pick(m, 0, 2*time.Second, 8*time.Second)
}

func (m *maker) some(most uint64) uint64 { return m.rng.Uint64N(most) }

// pod draws a pod.
func (m *maker) pod() *pod {
	m.made++
	p := newPod(fmt.Sprintf("p%02d", m.made)).gives(pick(m, 0, 2*time.Second, 10*time.Second, 30*time.Second))
	if m.rng.IntN(2) == 0 {
		p.ask(v1.ResourceMemory, ofMemory, m.some(1500)*mi)
	}
	if m.rng.IntN(3) == 0 {
		p.ask(v1.ResourceEphemeralStorage, ofStorage, m.some(10000)*mi)
	}
	switch m.rng.IntN(10) {
	case 0:
		p.static()
	case 1:
		p.important(2_000_000_000)
	case 2, 3, 4, 5:
		p.important(pick[int32](m, -10, 0, 5, 1000))
	}
	if m.rng.IntN(5) == 0 {
		p.limitVolume((500 + m.some(5000)) * mi)
	}
	if m.rng.IntN(5) == 0 {
		p.limitContainer((2000 + m.some(5000)) * mi)
	}
	p.takes = pick(m, 0, time.Second, 3*time.Second, time.Minute)
	p.late = pick(m, 0, 0, 0, time.Second, time.Duration(m.some(uint64(100*time.Second))))
	p.emptying = pick(m, 0, time.Second, 4*time.Second, time.Duration(m.some(uint64(15*time.Second))))
	p.slow = pick(m, 0, 0, 0, 0, 0, 0, 0, 3*time.Second, 7*time.Second, time.Duration(m.some(uint64(90*time.Second))))
	p.first = use{memory: (20 + m.some(400)) * mi, pids: 1 + m.some(50), volume: m.some(400) * mi, logs: m.some(50) * mi, layer: m.some(300) * mi, files: m.some(1000), layerFiles: m.some(500)}
	return p
}

// incident draws something that may make the node short.
func (m *maker) incident(at time.Duration) {
	rank, part := m.rng.IntN(100), .1+m.rng.Float64()*1.2
	switch kind := m.rng.IntN(15); kind {
	case 0, 1, 2, 3, 4, 5, 6:
		r := []good{memory, memory, podsMemory, pids, nodeBytes, nodeBytes, nodeInodes}[kind]
		steps, every := 1+m.rng.IntN(6), time.Duration(m.some(uint64(2*time.Second)))
		where := pick(m, "volume", "logs", "layer", "removed")
		for i := range steps {
			share := part + (1-part)*float64(steps-1-i)/float64(steps)*2
			m.add(at+time.Duration(i)*every, fmt.Sprintf("a pod takes of %d, step %d", r, i), func(w *world) { w.set(func() { w.fillLocked(r, rank, share, where) }) })
		}
	case 7:
		m.add(at, "a pod takes of the images' disk", func(w *world) { w.set(func() { w.fillLocked(imageBytes, rank, part, "layer") }) })
	case 8:
		m.add(at, "images fill their disk", func(w *world) { w.set(func() { w.imagesLocked(part) }) })
	case 9:
		r, long := pick(m, memory, pids, nodeBytes), time.Duration(5+m.some(60))*time.Second
		m.add(at, fmt.Sprintf("the system takes of %d for %s", r, long), func(w *world) { w.set(func() { w.systemLocked(r, part, long) }) })
	case 10:
		m.add(at, "a pod has more than it may", func(w *world) { w.set(func() { w.exceedLocked(rank, rank%2 == 0) }) })
	case 11:
		m.add(at, "a pod gives back what it took", func(w *world) { w.set(func() { w.giveLocked(rank) }) })
	case 12:
		m.add(at, "a pod ends by itself", func(w *world) { w.set(func() { w.endLocked(w.anyLocked(rank)) }) })
	case 13:
		backOff := time.Duration(1+m.some(300)) * time.Second
		m.add(at, "a pod crashes", func(w *world) { w.set(func() { w.crashLocked(w.anyLocked(rank), backOff) }) })
	case 14:
		m.fillsAndCrashes(at, rank, part)
	}
}

// fillsAndCrashes has a pod fill a disk and crash.
func (m *maker) fillsAndCrashes(at time.Duration, rank int, part float64) {
	r, where := pick(m, nodeBytes, nodeBytes, nodeInodes, imageBytes), pick(m, "volume", "logs", "layer", "layer")
	after, backOff := time.Duration(m.some(uint64(4*time.Second))), time.Duration(1+m.some(300))*time.Second
	m.add(at, fmt.Sprintf("a pod takes of %d, and crashes after %s", r, after), func(w *world) {
		w.set(func() {
			if p := w.fillLocked(r, rank, part, where); p != nil {
				time.AfterFunc(after, func() { w.set(func() { w.crashLocked(p, backOff) }) })
			}
		})
	})
}

// anyLocked is one of the pods, those that run first.
func (w *world) anyLocked(rank int) *pod {
	all := w.podsLocked()
	running := slices.DeleteFunc(slices.Clone(all), func(p *pod) bool { return !p.runs() })
	if len(running) > 0 {
		all = running
	}
	return all[rank%len(all)]
}

// needLocked is the highest number that has to be left of a resource.
func (w *world) needLocked(r good) (need uint64) {
	for _, k := range w.judge.marks {
		if k.r == r && !k.soft {
			need = max(need, k.need)
		}
	}
	return need
}

// fillLocked has a pod take so much that only a part of what is to be left is; nil: none
// does.
func (w *world) fillLocked(r good, rank int, part float64, where string) *pod {
	left, wanted := w.machine.left(r), uint64(float64(w.needLocked(r))*part)
	p := w.anyLocked(rank)
	for _, q := range w.podsLocked() {
		if isDisk(r) && rank%2 == 0 && q.slow > 0 && q.runs() && !q.spared {
			p = q // Who is measured slowly and takes much is what is to be waited for.
			break
		}
	}
	if left <= wanted || !p.runs() {
		return nil
	}
	u, more := w.machine.uses[p.name], left-wanted
	if w.machine.capacity[podsMemory] > 0 && (r == memory || r == podsMemory) {
		more = min(more, w.machine.left(memory), w.machine.left(podsMemory)) // The kernel sees to that.
	}
	switch {
	case r == memory, r == podsMemory:
		u.memory += more
	case r == pids:
		u.pids += more
	case r == nodeInodes:
		u.files += more
	case r == imageBytes && w.machine.layout != imagesApart:
		return nil
	case r == imageBytes, where == "layer" && w.machine.layout != imagesApart:
		u.layer += more
	case where == "logs":
		u.logs += more
	case where == "removed":
		u.removed += more
	default:
		u.volume += more
	}
	w.machine.uses[p.name] = u
	w.tell("USE", p.name, fmt.Sprintf("%+v", u))
	return p
}

func (w *world) imagesLocked(part float64) {
	r := w.machine.imagesOn(false)
	if left, wanted := w.machine.left(r), uint64(float64(w.needLocked(r))*part); left > wanted {
		w.machine.images += left - wanted
	}
}

// systemLocked has what is no pod take something for a while.
func (w *world) systemLocked(r good, part float64, long time.Duration) {
	left, wanted := w.machine.left(r), uint64(float64(w.needLocked(r))*part)
	if left <= wanted {
		return
	}
	more := left - wanted
	w.machine.other[r] += more
	time.AfterFunc(long, func() { w.set(func() { w.machine.other[r] -= more }) })
}

// exceedLocked has a pod with a limit use more than that.
func (w *world) exceedLocked(rank int, removed bool) {
	all := slices.DeleteFunc(w.podsLocked(), func(p *pod) bool { return !p.runs() || p.volumeLimit+p.wholeLimit == 0 })
	if len(all) == 0 {
		return
	}
	p := all[rank%len(all)]
	u, more := w.machine.uses[p.name], max(p.volumeLimit, p.wholeLimit)+100*mi
	if removed {
		u.removed = more
	} else {
		u.volume = more
	}
	w.machine.uses[p.name] = u
	w.tell("USE", p.name, fmt.Sprintf("%+v", u))
}

// giveLocked has a pod use what it did at first.
func (w *world) giveLocked(rank int) {
	if p := w.anyLocked(rank); p.runs() {
		w.machine.uses[p.name] = p.first
	}
}
