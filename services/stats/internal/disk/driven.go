package disk

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Volume names a volume of a pod.
type Volume struct{ PodUID, Name string }

// Driven is a volume that its driver has measured.
type Driven struct {
	Measured
	// Driver is its name.
	Driver string
	// Abnormal says how well the volume is; nil when its driver does not say.
	Abnormal *bool
}

// DrivenSource asks the driver of a volume; it must respect ctx.
type DrivenSource func(ctx context.Context, v Volume) (Driven, error)

// DrivenConfig says how often drivers are asked.
type DrivenConfig struct {
	// Period is how old an answer may be before it is asked for again, when somebody
	// wants it.
	Period time.Duration
	// Deadline bounds one question.
	Deadline time.Duration
	// Measured is told of each answer: whose it is, and how long it took; may be nil.
	Measured func(driver string, took time.Duration)
}

// Drivens asks drivers about volumes, each by itself: one that hangs delays the answers
// about its own volumes alone. What nobody has asked for lately is forgotten. Safe for
// concurrent use.
type Drivens struct {
	cfg    DrivenConfig
	source DrivenSource

	mu      sync.Mutex
	entries map[Volume]*drivenEntry
}

type drivenEntry struct {
	last  Driven
	valid bool
	tried bool // the first question has ended
	next  time.Time
	// asked is when somebody wanted the answer last.
	asked time.Time
	// running is closed when the question under way is answered; nil without one.
	running chan struct{}
	// failed is how many questions have failed since the last answer.
	failed int
}

const (
	// forgotten is how many periods a volume is kept for that nobody asks for. Who asks does
	// not name the same ones: a pod whose sandbox is gone has volumes for some alone.
	forgotten = 5
	// outdated is how many questions in succession fail until the last answer is none any
	// more, as no kubelet says what a driver does not; one may fail for a restart.
	outdated = 2
)

// NewDrivens returns Drivens that have asked nobody yet.
func NewDrivens(cfg DrivenConfig, source DrivenSource) *Drivens {
	return &Drivens{cfg: cfg, source: source, entries: map[Volume]*drivenEntry{}}
}

// Get returns the last answers about these volumes, and asks for those that are missing or
// old. It waits for first answers until ctx is done.
func (d *Drivens) Get(ctx context.Context, volumes []Volume) map[Volume]Driven {
	for _, first := range d.ask(ctx, volumes) {
		select {
		case <-first:
			continue
		case <-ctx.Done():
		}
		break
	}
	out := make(map[Volume]Driven, len(volumes))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range volumes {
		if e := d.entries[v]; e != nil && e.valid {
			out[v] = e.last
		}
	}
	return out
}

// Run asks about all volumes by itself, nobody having to want the answers, until ctx is
// done. It looks oftener than each Period which answers are old: their age counts from
// when they came, and by a look each Period one would be found too young every other time.
func (d *Drivens) Run(ctx context.Context, volumes func() []Volume) error {
	looks := time.NewTicker(max(d.cfg.Period/4, time.Millisecond))
	defer looks.Stop()
	for {
		d.ask(ctx, volumes())
		select {
		case <-looks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Drivens) ask(ctx context.Context, volumes []Volume) (pending []chan struct{}) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range volumes {
		e := d.entries[v]
		if e == nil {
			e = &drivenEntry{}
			d.entries[v] = e
		}
		e.asked = now
		if e.running == nil && !now.Before(e.next) {
			e.running = make(chan struct{})
			go d.fetch(context.WithoutCancel(ctx), v, e)
		}
		if !e.tried && e.running != nil {
			pending = append(pending, e.running)
		}
	}
	maps.DeleteFunc(d.entries, func(_ Volume, e *drivenEntry) bool {
		return e.running == nil && now.Sub(e.asked) > forgotten*d.cfg.Period
	})
	return pending
}

func (d *Drivens) fetch(ctx context.Context, v Volume, e *drivenEntry) {
	limited, cancel := context.WithTimeout(ctx, d.cfg.Deadline)
	defer cancel()
	began := time.Now()
	answer, err := d.source(limited, v)
	took := time.Since(began)
	if err == nil && d.cfg.Measured != nil {
		d.cfg.Measured(answer.Driver, took)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.next = time.Now().Add(max(d.cfg.Period, 10*took))
	if err == nil {
		e.last, e.valid, e.failed = answer, true, 0
	} else if e.failed++; e.failed == 1 {
		klog.FromContext(ctx).V(2).Info("A volume's driver does not say how full it is", "podUID", v.PodUID, "volume", v.Name, "err", err)
	}
	e.valid = e.valid && e.failed < outdated
	e.tried = true
	close(e.running)
	e.running = nil
}
