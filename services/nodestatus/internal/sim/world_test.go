package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus"
)

const nodeName = "n1"

// world is one simulation.
type world struct {
	t        *testing.T
	seed     int64
	scenario *scenario
	sabotage *sabotage // nil but in the tests of the judge
	api      *fakeapiserver.Server
	podsync  *process
	stats    *process
	judge    *judge
	trace    *trace
	log      logr.Logger
	lives    sync.WaitGroup
	over     chan struct{}

	mu sync.Mutex
	// changed is closed, and another, whenever something changes.
	changed chan struct{}
	machine *machine
	pods    map[string]*pod
	// revision is that of podsync's pods.
	revision uint64
	told     *told
	run      *run
	// down is the machine's shutdown; nil: there is none. closed: podsync admits no pod.
	down   *down
	closed bool
	// restarting: nodestatus is dead, and is to begin anew.
	restarting bool

	// What is wrong at the moment. full: podsync cannot keep what it is told. manyFiles:
	// stats has no time for the open files of some pods. hung are what
	// is not measured, for a filesystem does not answer. jumpFrame and jumpSummary are wrong
	// figures of the next look. partialUntil is how long podsync does not know all its pods,
	// gathers for how long after its start; namelessUntil how long stats does not know any.
	full, partitioned           bool
	manyFiles                   bool
	hung                        map[good]bool
	jumpFrame, jumpSummary      map[good]uint64
	partialUntil, namelessUntil time.Time
	gathers                     time.Duration
	// dieAtStop has podsync die at the next call to stop a pod: 1 before it keeps it, 2
	// before it answers; dieFor is how long. dieAtReclaim is the same while it reclaims, before
	// anything is freed. runDiesAtStop has nodestatus.
	dieAtStop     int
	dieFor        time.Duration
	dieAtReclaim  bool
	runDiesAtStop bool
	// faults are until when each kind of fault may have its effect, and since when.
	faults map[string]span
}

// span is a time.
type span struct{ from, until time.Time }

// run is one of nodestatus: from its start to its death.
type run struct {
	number int
	began  time.Time
	cancel context.CancelFunc
	killed atomic.Bool
	server nodestatusv1.NodeStatusServiceServer
}

// kill is SIGKILL: no call of this run reaches anybody any more.
func (r *run) kill() {
	r.killed.Store(true)
	r.cancel()
}

func (r *run) dead() bool { return r.killed.Load() }

// RegisterService implements grpc.ServiceRegistrar.
func (r *run) RegisterService(_ *grpc.ServiceDesc, impl any) {
	r.server = impl.(nodestatusv1.NodeStatusServiceServer)
}

// host has one address.
type host struct{}

func (host) Addresses() ([]netip.Addr, error)        { return []netip.Addr{address}, nil }
func (host) DefaultRoute(bool) ([]netip.Addr, error) { return []netip.Addr{address}, nil }
func (host) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{address}, nil
}

var address = netip.MustParseAddr("10.0.0.1")

func newWorld(t *testing.T, seed int64, s *sabotage) *world {
	w := &world{
		t: t, seed: seed, sabotage: s, over: make(chan struct{}), changed: make(chan struct{}), pods: map[string]*pod{}, trace: newTrace(),
		hung: map[good]bool{}, faults: map[string]span{}, log: logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)),
	}
	if *oneSeed != 0 && testing.Verbose() {
		w.trace.out = t.Output()
		w.log = logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: plainTime}))
	}
	if s != nil && s.scenario != nil {
		w.scenario = s.scenario(seed)
	} else {
		w.scenario = newScenario(seed)
	}
	w.machine, w.gathers = w.scenario.machine, w.scenario.gathers
	w.judge = newJudge(w)
	w.podsync = &process{w: w, name: "podsync", handle: w.podsyncHandles, open: w.podsyncOpens, calls: map[string]int{}}
	w.stats = &process{w: w, name: "stats", handle: w.statsHandles, open: w.statsOpens, calls: map[string]int{}}
	w.api = fakeapiserver.New(fakeapiserver.Config{Seed: seed})
	return w
}

// plainTime shortens the times of a story.
func plainTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.String(a.Key, a.Value.Time().UTC().Format("15:04:05.000"))
	}
	return a
}

// simulate lets the scenario happen.
func (w *world) simulate() {
	defer w.api.Close()
	for _, p := range w.scenario.pods {
		w.add(p)
	}
	w.start()
	w.lives.Go(w.clock)
	began := time.Now()
	for _, a := range w.scenario.acts {
		time.Sleep(time.Until(began.Add(a.at)))
		w.mu.Lock()
		w.tell("ACT", a.what)
		w.mu.Unlock()
		a.do(w)
	}
	time.Sleep(time.Until(began.Add(w.scenario.long)))
	w.set(func() {
		if !w.offLocked() {
			w.judge.endsLocked()
		}
	})
	close(w.over)
	w.run.kill()
	w.set(func() { w.podsync.life++; w.stats.life++ })
	w.lives.Wait()
}

// clock is each second.
func (w *world) clock() {
	for second := 1; ; second++ {
		select {
		case <-w.over:
			return
		case <-time.After(time.Second - time.Duration(time.Now().Nanosecond())%time.Second + 7*time.Millisecond):
		}
		w.measures(second)
		w.mu.Lock()
		if !w.offLocked() {
			w.judge.tickLocked()
		}
		w.mu.Unlock()
	}
}

// start begins a run of nodestatus.
func (w *world) start() {
	w.mu.Lock()
	if w.offLocked() {
		w.mu.Unlock()
		return
	}
	number := 1
	if w.run != nil {
		number = w.run.number + 1
	}
	r := &run{number: number, began: time.Now()}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), w.log))
	r.cancel = cancel
	w.run, w.restarting = r, false
	w.tell("nodestatus starts", number)
	w.judge.beganLocked(r)
	w.mu.Unlock()
	client := w.api.Client()
	service, err := nodestatus.New(w.scenario.config(), nodestatus.Deps{
		Podsync: &conn{w: w, peer: w.podsync, run: r}, Stats: &conn{w: w, peer: w.stats, run: r},
		Client: client, Heartbeat: client, Addresses: host{},
		Shutdowns: &line{w: w, run: r},
	})
	w.must(err)
	service.Register(r)
	w.lives.Go(func() {
		if err := service.Run(ctx); err != nil && !r.dead() {
			w.set(func() { w.judge.violationLocked("nodestatus ended: %v", err) })
		}
	})
}

// restart kills nodestatus, which begins anew some time later.
func (w *world) restart(away time.Duration) {
	already := false
	w.set(func() {
		if already = w.restarting; already {
			return
		}
		w.restarting = true
		w.run.kill()
		w.tell("nodestatus dies, and is away for", away)
		w.fault("nodestatus", away+time.Second)
	})
	if already {
		return
	}
	time.Sleep(away)
	w.start()
}

// set changes something.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.machine.note()
	w.judge.changedLocked()
	w.notifyLocked()
}

func (w *world) notifyLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// fault notes that something is wrong from now on for a time.
func (w *world) fault(kind string, long time.Duration) {
	now, f := time.Now(), w.faults[kind]
	if !now.Before(f.until) {
		f.from = now
	}
	if until := now.Add(long); until.After(f.until) {
		f.until = until
	}
	w.faults[kind] = f
}

// add has a pod run, as its use is.
func (w *world) add(p *pod) {
	w.set(func() {
		if w.closed || w.offLocked() {
			return // It is not admitted.
		}
		p.alive, p.listed, p.began, p.walkedAt, p.weighedAt = true, true, time.Now(), time.Now(), time.Now()
		w.pods[p.name] = p
		if w.machine.uses == nil {
			w.machine.uses = map[string]use{}
		}
		w.machine.uses[p.name] = p.first
		p.known = p.first
		w.revision++
		w.tell("POD", p.name, fmt.Sprintf("%+v", p.first), "priority", p.priority, "asks", p.asks, "spared", p.spared, "slow", p.slow)
	})
}

// tell adds to the trace.
func (w *world) tell(words ...any) { w.trace.note(words...) }

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}
