package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

const (
	nodeName  = "node1"
	namespace = "default"
	hostIP    = "192.0.2.1"
	goodImage = "registry.local/app:1"
	newImage  = "registry.local/app:2"
	badImage  = "registry.local/missing:1"
)

// act is one thing that happens at a time.
type act struct {
	at   time.Duration
	what string
	do   func(w *world)
}

// scenario is what a seed stands for.
type scenario struct {
	subjects []*subject
	byName   map[string]*subject
	acts     []act
	noisy    time.Duration // how long acts and faults go on
	faulty   bool
	cri      fakecri.Rates
	api      fakeapiserver.Rates
	// crashes is how often podsync may die at a call, and crashRate how probable
	// that is per call.
	crashes   int
	crashRate float64
	noEvents  bool
	// badTeardowns is how probable it is that a network cannot be taken down.
	badTeardowns float64
	// alwaysVerify: images that were there before are verified, too.
	alwaysVerify bool
	// calm: neither the runtime nor the apiserver fails.
	calm bool
	// csi is nil without CSI drivers.
	csi *csiPlan
}

func newScenario(seed int64) *scenario {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	s := &scenario{noisy: time.Duration(60+rng.IntN(120)) * time.Second, noEvents: rng.IntN(4) == 0, byName: map[string]*subject{}}
	heavy := []float64{0, .3, 1, 2}[rng.IntN(4)]
	s.faulty, s.calm = true, heavy == 0
	s.cri = fakecri.Rates{
		Err: .03 * heavy, Hang: .01 * heavy, LostResponse: .03 * heavy, Delay: .2 * heavy, MaxDelay: 2 * time.Second,
		DropEvent: .15 * heavy, DupEvent: .1 * heavy, DelayEvent: .15 * heavy,
	}
	s.api = fakeapiserver.Rates{
		Err: .03 * heavy, TooMany: .02 * heavy, Drop: .03 * heavy, Hang: .005 * heavy, LostResponse: .03 * heavy,
		Delay: .1 * heavy, MaxDelay: 2 * time.Second, CutWatch: .2 * heavy, ExpireWatch: .05 * heavy, DelayEvents: .1 * heavy,
	}
	s.crashes = rng.IntN(5)
	s.crashRate = []float64{.002, .01, .03}[rng.IntN(3)]
	for i := range 1 + rng.IntN(5) {
		sub := newSubject(rng, i)
		s.put(sub)
		s.life(rng, sub)
	}
	s.chaos(rng, heavy)
	s.extra(seed)
	s.crowd(seed)
	s.secrecy(seed)
	s.claims(seed)
	s.worlds(seed)
	s.evictions(seed)
	s.storage(seed)
	s.devices(seed)
	s.growths(seed)
	s.damages(seed)
	s.pushes(seed)
	s.edges(seed) // last: all pods are to be admitted
	slices.SortStableFunc(s.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return s
}

func (s *scenario) put(sub *subject) {
	s.subjects = append(s.subjects, sub)
	s.byName[sub.pod.Name] = sub
}

func (s *scenario) add(at time.Duration, what string, do func(*world)) {
	s.acts = append(s.acts, act{at, what, do})
}

// life plans a pod's creation, changes and deletion, and says when it is created.
func (s *scenario) life(rng *rand.Rand, sub *subject) (at time.Duration) {
	at = time.Duration(rng.Int64N(int64(s.noisy / 2)))
	later := func() time.Duration { return at + time.Duration(rng.Int64N(int64(s.noisy-at))) }
	s.add(at, "create "+sub.pod.Name+" ("+sub.shape+", "+string(sub.pod.Spec.RestartPolicy)+")", func(w *world) { w.create(sub) })
	if !sub.static {
		if sub.mayChange && rng.IntN(3) == 0 {
			s.add(later(), "change the image of "+sub.pod.Name, func(w *world) { w.changeImage(sub) })
		}
		if rng.IntN(4) == 0 {
			color := fmt.Sprint("color-", rng.IntN(100))
			s.add(later(), "change a label of "+sub.pod.Name, func(w *world) { w.changeLabel(sub, color) })
		}
	}
	if sub.static && sub.mayChange && rng.IntN(3) == 0 {
		s.add(later(), "change the manifest of "+sub.pod.Name, func(w *world) { w.changeManifest(sub) })
	}
	if script := []fakecri.Script{fakecri.Exits(time.Second, 0), fakecri.Exits(time.Second, 5), {}, {OnTerm: fakecri.Term{Ignore: true}}}[rng.IntN(4)]; !sub.static && rng.IntN(4) == 0 {
		sub.scripts[ephemeral] = script
		s.add(later(), "debug "+sub.pod.Name, func(w *world) { w.debug(sub) })
	}
	for range len(sub.sizes) * rng.IntN(4) {
		to := sub.nextSize(rng)
		s.add(later(), fmt.Sprintf("resize %s to %v", sub.pod.Name, to), func(w *world) { w.resize(sub, to) })
	}
	if sub.shape == "late" {
		s.add(later(), "create the ConfigMap "+sub.pod.Name, func(w *world) { w.must(w.configMap(sub.pod.Name, "late")) })
	}
	if sub.shape == "volumes" {
		value := fmt.Sprint(rng.IntN(1000))
		s.add(later(), "change the ConfigMap config", func(w *world) { w.must(w.configMap("config", value)) })
	}
	if rng.IntN(2) == 0 {
		return at
	}
	when := later()
	grace := []int64{-1, -1, 0, 1, 5, 30}[rng.IntN(6)]
	s.add(when, fmt.Sprintf("delete %s with grace %d", sub.pod.Name, grace), func(w *world) { w.remove(sub, grace) })
	if rng.IntN(3) == 0 && !sub.static {
		shorter := []int64{0, 1, 3}[rng.IntN(3)]
		s.add(when+time.Duration(rng.IntN(10000))*time.Millisecond, fmt.Sprintf("delete %s with grace %d", sub.pod.Name, shorter), func(w *world) { w.remove(sub, shorter) })
	}
	return at
}

// chaos plans what happens to the runtime, the apiserver and podsync itself.
func (s *scenario) chaos(rng *rand.Rand, heavy float64) {
	when := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
	for range int(heavy * float64(1+rng.IntN(4))) {
		long := time.Duration(1+rng.IntN(20)) * time.Second
		begin, pick := when(), rng.IntN(100)
		switch rng.IntN(12) {
		case 0:
			how := fakeapiserver.Partition(1 + rng.IntN(2))
			s.add(begin, "partition", func(w *world) { w.api.Partition(how) })
			s.add(begin+long, "heal", func(w *world) { w.api.Heal() })
		case 1:
			s.add(begin, "drop watches", func(w *world) { w.api.DropWatches() })
		case 2:
			s.add(begin, "compact", func(w *world) { w.api.Compact(); w.api.DropWatches() })
		case 3:
			s.add(begin, "the runtime goes", func(w *world) { w.rt.SetDown(true) })
			s.add(begin+long, "the runtime comes", func(w *world) { w.rt.SetDown(false) })
		case 4:
			s.add(begin, "a process is killed", func(w *world) { w.killProcess(pick) })
		case 5:
			s.add(begin, "a sandbox dies", func(w *world) { w.killSandbox(pick) })
		case 6:
			s.add(begin, "the network goes", func(w *world) { w.rt.SetNetworkReady(false) })
			s.add(begin+long, "the network comes", func(w *world) { w.rt.SetNetworkReady(true) })
		case 7:
			s.add(begin, "podsync is killed", func(w *world) { w.crash("SIGKILL") })
		case 8:
			s.add(begin, "the probes process is killed", func(w *world) { w.prober.restart(long / 4) })
		case 9:
			s.add(begin, "results of probes come late", func(w *world) { w.prober.late(3 * time.Second) })
			s.add(begin+long, "results of probes come at once", func(w *world) { w.prober.late(0) })
		case 10:
			s.add(begin, "what was kept of the probes is damaged", func(w *world) { w.damage() })
		case 11:
			if rng.IntN(3) == 0 {
				wiped := pick%3 == 0
				s.add(begin, fmt.Sprint("the machine reboots; the runtime forgets everything: ", wiped), func(w *world) { w.reboot(wiped) })
			}
		}
	}
}
