package evict

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/judge"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	mi       = 1 << 20
	capacity = 1000 * mi
	allPIDs  = 1000
)

// renewed and weighed are details of this test's own: what lies on disks is measured anew, and
// what layers weigh is.
const (
	renewed Detail = 100
	weighed Detail = 101
)

// world is a node with pods that use memory and disk, with podsync and stats in one.
type world struct {
	t     *testing.T
	moved wake.Signal
	judge *judge.Judge
	// judged is what the loop asks of it.
	judged *counted
	loop   *Loop

	mu    sync.Mutex
	frame pressure.Frame
	pods  []*v1.Pod
	// memory and disk are what pods use, by name; other what the rest does.
	memory, disk, unlinked map[string]uint64
	otherMemory, otherDisk uint64
	// blind: stats says nothing of the disk, neither in a frame nor when it is asked.
	blind bool
	// inodesLeft is how many inodes a look finds to be free; 0 is that it does not say.
	inodesLeft uint64
	// pids are the processes of pods, of which there may be a thousand; nil: nothing is said.
	pids map[string]uint64
	// takes is how long a pod takes to end, by name; 0 is at once.
	takes map[string]time.Duration
	// stopErr answers StopPod, alreadyStopped are pods that are being stopped.
	stopErr        error
	alreadyStopped map[string]bool
	// hangs is how long StopPod takes, by pod; slow is how long Pods takes.
	hangs map[string]time.Duration
	slow  time.Duration
	// endings are what podsync says that it ends; nil: it does not say.
	endings map[types.UID]Ending
	// dropped are pods that their source does not have any more.
	dropped map[string]bool
	// weighs may be nil; what happens while layers are weighed. some: stats had no time
	// for all open files.
	weighs func()
	some   bool
	// someOf are pods of whose open files it had no time for all.
	someOf map[string]bool
	// looks is how often open files were looked at, lookTakes how long that takes.
	looks     int
	lookTakes time.Duration
	statsErr  error
	partial   bool
	epoch     uint64
	// walked is what disk was when it was measured last, layersAt when layers were.
	walked   map[string]uint64
	layersAt map[string]time.Time
	// layers is what is known of them, late whose are not weighed, or in part; unweighed: of
	// these nothing is.
	layers          map[string]uint64
	late, unweighed map[string]bool
	layout          threshold.Layout
	// long are pods whose directories take too long to be measured anew.
	long map[string]bool
	// sinces are how old what lies on disks was allowed to be, and renewTakes how long it
	// takes to be measured.
	sinces []time.Time
	// anew are the pods of which it was asked for, of none of all; counts are those with volumes
	// that are counted.
	anew   [][]types.UID
	counts map[types.UID]bool
	// slowly is after how long those of long are measured since a time after all; zero: never.
	slowly time.Duration
	// sums: figures have the pod's sum of ephemeral storage, too.
	sums bool
	// unlookable: stats cannot look at open files.
	unlookable bool

	renewTakes time.Duration
	changed    wake.Signal
	asked      []eviction.Reclaim
	forgetful  bool   // podsync was just started, and knows no pods yet
	reclaims   func() // may be nil; what a reclaim does
	barren     bool   // it finds nothing
	reclaimErr error  // nothing is reclaimed
	walks      func() // may be nil; what happens while disks are measured anew
	summaries  []Detail
	stops      []Stop
	told       []string // what podsync was told of pressure
	events     []string
	registry   *prometheus.Registry

	// lines are what was logged at verbosity 0; logs has them to itself.
	logs  sync.Mutex
	lines []string
}

func (w *world) log(_, line string) {
	w.logs.Lock()
	defer w.logs.Unlock()
	w.lines = append(w.lines, line)
}

// said are the lines with a text in them.
func (w *world) said(text string) (out []string) {
	w.logs.Lock()
	defer w.logs.Unlock()
	for _, line := range w.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// counted counts how often is judged.
type counted struct {
	judge Judge
	times atomic.Int64
}

func (c *counted) Judge(now time.Time) (pressure.Judgement, pressure.Frame, bool) {
	c.times.Add(1)
	return c.judge.Judge(now)
}

func (c *counted) Seeded() bool { return c.judge.Seeded() }

func newWorld(t *testing.T, settings threshold.Settings, cfg Config) *world {
	t.Helper()
	thresholds, err := threshold.Parse(settings)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, moved: wake.New(), changed: wake.New(), memory: map[string]uint64{}, disk: map[string]uint64{}, unlinked: map[string]uint64{}, takes: map[string]time.Duration{},
		alreadyStopped: map[string]bool{}, registry: prometheus.NewRegistry(),
	}
	w.judge = judge.New(judge.Config{Thresholds: thresholds, Transition: 5 * time.Minute}, func() pressure.Frame {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.frame
	})
	metrics, err := NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.judged = &counted{judge: w.judge}
	w.loop = New(cfg, Deps{Judge: w.judged, Podsync: w, Stats: w, Events: w, Moved: w.moved, Metrics: metrics})
	return w
}

// in runs test beside the loop, in a bubble. The loop begins when test first lets time pass:
// what was set up until then is there from its first look on.
func in(t *testing.T, settings threshold.Settings, cfg Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, settings, cfg)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(w.log, funcr.Options{})))
		var running sync.WaitGroup
		begin := func(run func(context.Context) error) func() {
			return func() { time.Sleep(time.Nanosecond); _ = run(ctx) }
		}
		running.Go(begin(w.loop.Run))
		running.Go(begin(w.loop.RunPressure))
		test(w)
		cancel()
		running.Wait()
	})
}

// pod adds a pod.
func (w *world) pod(name string, memory, disk uint64, change ...func(*v1.Pod)) {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{Name: "c"}}},
	}
	for _, f := range change {
		f(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = append(w.pods, p)
	w.memory[name], w.disk[name] = memory, disk
}

func asks(memory string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	}
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.changed.Set()
}

func (w *world) leftLocked() (memory, disk uint64) {
	memory, disk = capacity-w.otherMemory, capacity-w.otherDisk
	for name := range w.memory {
		memory, disk = memory-min(memory, w.memory[name]), disk-min(disk, w.disk[name]+w.unlinked[name])
	}
	return memory, disk
}

func (w *world) pidsLeftLocked() uint64 {
	left := uint64(allPIDs)
	for _, n := range w.pids {
		left -= min(left, n)
	}
	return left
}

// signals sends a frame of what is.
func (w *world) signals() { w.signalsAt(0) }

// signalsAt sends one that was measured some time ago.
func (w *world) signalsAt(old time.Duration) {
	time.Sleep(time.Millisecond) // Virtual: no two measurements are of one instant.
	w.set(func() {
		memory, disk := w.leftLocked()
		now := time.Now()
		w.frame = pressure.Frame{Heard: now, Layout: w.layout, Signals: []pressure.Signal{
			{Name: "memory.available", Available: memory, Capacity: capacity, Time: now.Add(-old)},
		}}
		if !w.blind {
			w.frame.Signals = append(w.frame.Signals, pressure.Signal{Name: "nodefs.available", Available: disk, Capacity: capacity, Time: now.Add(-old)})
		}
		if w.pids != nil {
			w.frame.Signals = append(w.frame.Signals, pressure.Signal{Name: "pid.available", Available: w.pidsLeftLocked(), Capacity: allPIDs, Time: now.Add(-old)})
		}
	})
	w.moved.Set()
	synctest.Wait()
}

// pass lets time pass with a frame each half second.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(500*time.Millisecond, time.Until(end)))
		w.signals()
	}
}

func (w *world) Pods(context.Context) (Pods, error) {
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	time.Sleep(slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgetful {
		return Pods{Epoch: w.epoch, Partial: w.partial}, nil
	}
	pods := slices.DeleteFunc(slices.Clone(w.pods), func(p *v1.Pod) bool { return w.dropped[p.Name] })
	return Pods{Epoch: w.epoch, Pods: pods, Partial: w.partial, Endings: maps.Clone(w.endings), EndingsKnown: w.endings != nil}, nil
}

func (w *world) FollowEnds(ctx context.Context, saw func(map[types.UID]bool)) error {
	for {
		ended := map[types.UID]bool{}
		w.mu.Lock()
		for _, p := range w.pods {
			if !w.forgetful && !w.dropped[p.Name] {
				ended[p.UID] = eviction.Ended(p)
			}
		}
		w.mu.Unlock()
		saw(ended)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
	}
}

func (w *world) StopPod(_ context.Context, stop Stop) (bool, error) {
	w.mu.Lock()
	w.stops = append(w.stops, stop)
	hangs := w.hangs[stop.Pod.Name]
	w.mu.Unlock()
	time.Sleep(min(hangs, 5*time.Second))
	if hangs >= 5*time.Second {
		return false, fmt.Errorf("%w: no answer", rpcerr.ErrTimeout)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopErr != nil {
		return false, w.stopErr
	}
	name := stop.Pod.Name
	time.AfterFunc(w.takes[name], func() { w.end(name) })
	return w.alreadyStopped[name], nil
}

// end takes a pod away.
func (w *world) end(name string) {
	w.set(func() {
		w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p.Name == name })
		delete(w.memory, name)
		delete(w.disk, name)
		delete(w.pids, name)
	})
}

func (w *world) Reclaim(ctx context.Context, what eviction.Reclaim) (Reclaimed, error) {
	w.mu.Lock()
	do, barren, epoch := w.reclaims, w.barren, w.epoch
	w.asked = append(w.asked, what)
	w.mu.Unlock()
	if do != nil {
		do()
	}
	if w.reclaimErr != nil {
		return Reclaimed{Epoch: epoch}, w.reclaimErr
	}
	if barren {
		return Reclaimed{Epoch: epoch}, ctx.Err()
	}
	return Reclaimed{Epoch: epoch, Containers: 1, Images: 2, ImageBytes: 3}, ctx.Err()
}

func (w *world) SetPressure(_ context.Context, conditions []string, ttl time.Duration) error {
	w.set(func() { w.told = append(w.told, fmt.Sprint(conditions, ttl)) })
	return nil
}

func (w *world) Send(_ context.Context, e node.Event) {
	w.set(func() { w.events = append(w.events, e.Type+" "+e.Reason+": "+e.Message) })
}

// wantStops compares the pods that were stopped.
func (w *world) wantStops(when string, want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for _, s := range w.stops {
		got = append(got, s.Pod.Name)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: stopped %v, want %v", when, got, want)
	}
}

// last is the newest decision.
func (w *world) last() Decision {
	w.t.Helper()
	synctest.Wait()
	all := w.loop.View().Decisions
	if len(all) == 0 {
		w.t.Fatal("nothing was decided")
	}
	return all[len(all)-1]
}

// metric is the sum of a series.
func (w *world) metric(name, signal string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && strings.Contains(m.String(), signal) {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}
