package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

// csiPlan is what a scenario has of CSI drivers.
type csiPlan struct {
	drivers []*driverPlan
	// claims are the drivers of claims, by the claims' names.
	claims map[string]*driverPlan
	// raw are the claims whose volumes are devices.
	raw []string
	// dies is at which of its calls to drivers podsync dies, zero for at none; after: the
	// call has its effect first.
	dies  int
	after bool
}

// driverPlan is what a driver is like.
type driverPlan struct {
	name                      string
	stages, attach, republish bool
	grows                     bool
	// heavy is how much goes wrong; a driver with zero is as it should be.
	heavy float64
	// hangs: all of it does now and then, for a while.
	hangs bool
}

func (p *driverPlan) steady() bool { return p.heavy == 0 && !p.hangs }

// disks are the drivers of the node, with their sockets.
type disks struct {
	w       *world
	drivers []*driver

	mu      sync.Mutex
	sockets []*socket
	changed chan struct{} // closed when sockets changes
	calls   map[string]int
	asked   int // calls that change something
	calm    chan struct{}
}

// socket is a file at which a driver's process is reached, or was.
type socket struct {
	path    string
	driver  *driver
	process *process
	gone    chan struct{} // closed with the file
}

// process is one of a driver. What it knows is in the mounts.
type process struct {
	*fakecsi.Driver
	ctx context.Context //nolint:containedctx // it is the process's life
	die context.CancelFunc
}

// driver is a CSI driver.
type driver struct {
	*driverPlan
	disks *disks

	mu      sync.Mutex
	paths   int
	socket  *socket       // the newest
	goes    chan struct{} // while it hangs; closed when it does not any more
	pending bool          // it is launched soon
}

func newDisks(w *world) *disks {
	d := &disks{w: w, changed: make(chan struct{}), calls: map[string]int{}, calm: make(chan struct{})}
	if w.scenario.csi == nil {
		return d
	}
	for _, p := range w.scenario.csi.drivers {
		d.drivers = append(d.drivers, &driver{driverPlan: p, disks: d})
	}
	return d
}

// list is what sockets there are, and what is closed when there are others.
func (d *disks) list() ([]*socket, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*socket(nil), d.sockets...), d.changed
}

// replace changes what sockets there are.
func (d *disks) replace(old, now *socket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kept []*socket
	for _, s := range d.sockets {
		if s != old {
			kept = append(kept, s)
		}
	}
	if now != nil {
		kept = append(kept, now)
	}
	if old != nil {
		select {
		case <-old.gone:
		default:
			close(old.gone)
		}
	}
	d.sockets = kept
	close(d.changed)
	d.changed = make(chan struct{})
}

// at is who listens at a path; nil for nobody.
func (d *disks) at(path string) *socket {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sockets {
		if s.path == path && s.process.ctx.Err() == nil {
			return s
		}
	}
	return nil
}

// of finds a driver.
func (d *disks) of(name string) *driver {
	for _, each := range d.drivers {
		if each.name == name {
			return each
		}
	}
	return nil
}

// launch starts a driver anew, in place of one that has died; moved: at another path. The
// old file is there for so long.
func (d *driver) launch(moved bool, stale time.Duration) {
	d.mu.Lock()
	old := d.socket
	d.pending = false
	if moved || d.paths == 0 {
		d.paths++
	}
	ctx, die := context.WithCancel(context.Background())
	s := &socket{path: fmt.Sprintf("/csi/%s.%d.sock", d.name, d.paths), driver: d, gone: make(chan struct{})}
	s.process = &process{ctx: ctx, die: die, Driver: fakecsi.New(d.config())}
	d.socket = s
	d.mu.Unlock()
	d.disks.w.tell("DRIVER up", "driver", d.name, "at", s.path)
	switch {
	case old == nil || old.path == s.path:
		d.disks.replace(old, s)
	default:
		d.disks.replace(nil, s)
		time.AfterFunc(stale, func() { d.disks.replace(old, nil) })
	}
}

// kill ends the process of a driver, which comes back after a pause.
func (d *driver) kill(pause time.Duration, moved bool, stale time.Duration) {
	d.mu.Lock()
	s, soon := d.socket, d.pending
	d.pending = true
	d.mu.Unlock()
	if s == nil || soon {
		return
	}
	d.disks.w.tell("DRIVER down", "driver", d.name, "for", pause.String(), "moved", moved)
	s.process.die()
	time.AfterFunc(pause, func() { d.launch(moved, stale) })
}

// hang has all calls of a driver wait, until the time is over.
func (d *driver) hang(long time.Duration) {
	d.mu.Lock()
	if d.goes != nil {
		d.mu.Unlock()
		return
	}
	goes := make(chan struct{})
	d.goes = goes
	d.mu.Unlock()
	time.AfterFunc(long, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.goes == goes {
			d.goes = nil
			close(goes)
		}
	})
}

func (d *driver) config() fakecsi.Config {
	var can []csi.NodeServiceCapability_RPC_Type
	if d.stages {
		can = append(can, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if d.grows {
		can = append(can, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	w := d.disks.w
	put := func(volume, target string) error {
		w.judge.diskMounts(d, volume, target)
		return w.mounts.Bind("csi "+d.name+" "+volume, target)
	}
	return fakecsi.Config{
		Name: d.name, NodeID: nodeName, Can: can,
		Mount: func(volume, target string, _ bool) error { return put(volume, target) },
		Bind: func(staged, target string, _ bool) error {
			_, volume, _ := strings.Cut(strings.TrimPrefix(w.mounts.Source(staged), "csi "), " ")
			return put(volume, target)
		},
		Unmount: func(target string) error {
			w.tell("DISK unmounted", "target", target)
			return w.mounts.Unmount(target)
		},
		Mounted: w.mounts.Mounted,
		Device:  d.putDevice,
		Grow: func(volume, _ string, bytes int64) error {
			w.judge.diskGrown(d, volume, bytes)
			return nil
		},
		Fault: func(ctx context.Context, at string) error {
			return d.mishap(ctx, strings.HasSuffix(at, " done"))
		},
	}
}

// mishap is what goes wrong with one call.
type mishap struct {
	delay, hang  time.Duration
	err          error
	after        bool // it has its effect first
	dies, forget bool // forget: it says that it is done, and has done nothing, unless it is busy with the volume
	moved        bool
	pause, stale time.Duration
}

type mishapOf struct{}

// choose says what goes wrong with a call: by the seed, what it is about, and how many such
// calls came before.
func (d *driver) choose(name, about string) (m mishap) {
	w := d.disks.w
	if !w.noisy.Load() {
		return m
	}
	key := d.name + " " + name + " " + strings.ReplaceAll(about, w.dir, "")
	d.disks.mu.Lock()
	n := d.disks.calls[key]
	d.disks.calls[key]++
	d.disks.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	rng := rand.New(rand.NewPCG(uint64(w.seed), h.Sum64()+uint64(n)))
	changes := changing(name)
	m.after = changes && rng.IntN(2) == 0
	m.pause, m.stale, m.moved = time.Duration(rng.IntN(20000))*time.Millisecond, time.Duration(rng.IntN(20000))*time.Millisecond, rng.IntN(3) == 0
	if rng.Float64() < .2*d.heavy {
		m.delay = time.Duration(rng.IntN(5000)) * time.Millisecond
	}
	code := func(all ...codes.Code) error { return status.Error(all[rng.IntN(len(all))], "fault injected") }
	switch x := rng.Float64() / max(d.heavy, .001); {
	case x < .06:
		m.err = code(codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Canceled)
	case x < .12:
		m.err, m.after = code(codes.Internal, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Unknown), false
		if name == "NodeExpandVolume" && status.Code(m.err) == codes.FailedPrecondition {
			m.err = code(codes.Internal) // the other says that it will not grow while it is used, ever
		}
	case x < .15:
		m.hang = time.Duration(20+rng.IntN(300)) * time.Second // which is also: late
	case x < .19:
		m.dies = true
	case x < .24:
		m.forget = strings.HasPrefix(name, "NodeUn")
	}
	return m
}

// changing says whether a call changes something.
func changing(name string) bool {
	return strings.HasSuffix(name, "stageVolume") || strings.HasSuffix(name, "StageVolume") || strings.HasSuffix(name, "ublishVolume") || name == "NodeExpandVolume"
}

// mishap happens before or after a call's effect.
func (d *driver) mishap(ctx context.Context, after bool) error {
	m, _ := ctx.Value(mishapOf{}).(mishap)
	if !after {
		d.mu.Lock()
		goes := d.goes
		d.mu.Unlock()
		if goes != nil {
			d.wait(ctx, goes, time.Hour)
		}
		d.wait(ctx, nil, m.delay)
	}
	if m.after == after {
		if m.hang > 0 {
			d.wait(ctx, d.disks.calm, m.hang)
		}
		if m.dies {
			d.kill(m.pause, m.moved, m.stale)
		}
	}
	switch {
	case ctx.Err() != nil:
		return status.Error(codes.Unavailable, "the driver has died")
	case m.after == after:
		return m.err
	}
	return nil
}

// wait lets time pass, until the process dies or what it waits for has come.
func (*driver) wait(ctx context.Context, until <-chan struct{}, long time.Duration) {
	if long <= 0 {
		return
	}
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
	case <-until:
	case <-ctx.Done():
	}
}

// methods are those of a driver, by their full names.
var methods = func() map[string]grpc.MethodHandler {
	all := map[string]grpc.MethodHandler{}
	for _, m := range csi.Node_ServiceDesc.Methods {
		all["/"+csi.Node_ServiceDesc.ServiceName+"/"+m.MethodName] = m.Handler
	}
	return all
}()

// serve has a process answer a call, however long its caller waits.
func (s *socket) serve(method string, req any) (any, error) {
	name := filepath.Base(method)
	m := s.driver.choose(name, volumeOf(req)+" "+placeOf(req))
	if m.forget && !s.process.Busy(volumeOf(req)) { // else what is under way would bring the volume back at any time
		s.driver.disks.w.tell("DRIVER forgets", "driver", s.driver.name, "call", name, "volume", volumeOf(req))
		return map[bool]any{true: &csi.NodeUnstageVolumeResponse{}, false: &csi.NodeUnpublishVolumeResponse{}}[name == "NodeUnstageVolume"], nil
	}
	ctx := context.WithValue(s.process.ctx, mishapOf{}, m)
	return methods[method](s.process.Driver, ctx, func(in any) error {
		proto.Merge(in.(proto.Message), req.(proto.Message))
		return nil
	}, nil)
}

// volumeOf is the volume that a call is about.
func volumeOf(req any) string {
	if q, ok := req.(interface{ GetVolumeId() string }); ok {
		return q.GetVolumeId()
	}
	return ""
}

// placeOf is where a volume is to be, or is.
func placeOf(req any) string {
	switch q := req.(type) {
	case interface{ GetTargetPath() string }:
		return q.GetTargetPath()
	case interface{ GetStagingTargetPath() string }:
		return q.GetStagingTargetPath()
	}
	return ""
}
