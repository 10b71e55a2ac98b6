package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/notice"
	"github.com/polylet/polylet/services/stats/internal/signal"
)

const (
	defaultPeriod = 10 * time.Second
	minPeriod     = time.Second
	// looksPerPeriod is how often signals are measured in a period, to send
	// one at once that moved; a look is half a dozen small files.
	looksPerPeriod = 4
	// memoryPeriod is between two looks at memory for whom has a mark of it, unless the
	// kernel tells when one is crossed, and nearPeriod when it is near one: that is one
	// or two small files.
	memoryPeriod = time.Second
	nearPeriod   = 200 * time.Millisecond
	mostMarks    = 64
	// noticePeriod is between two looks at memory that the kernel's notices bring about.
	noticePeriod = 50 * time.Millisecond
)

// WatchSignals implements StatsService.
func (s *Server) WatchSignals(r *statsv1.WatchSignalsRequest, stream grpc.ServerStreamingServer[statsv1.WatchSignalsResponse]) error {
	w, err := s.watcher(r)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	defer w.listen(klog.FromContext(ctx))()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.heard:
			if wait := noticePeriod - time.Since(w.measuredAt); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		}
		err := w.measure(ctx)
		w.measuredAt = time.Now()
		w.armed = w.server.Collector.Arm(w.notices, w.marks, w.now.Signals)
		switch {
		case err != nil && w.sentAt.IsZero():
			return fmt.Errorf("%w: measure the eviction signals: %w", rpcerr.ErrUnavailable, err)
		case err != nil && !failed:
			klog.FromContext(ctx).Error(err, "Eviction signals are not measured, the watcher hears nothing until they are")
		case err == nil && w.news():
			if err := stream.Send(s.frame(w.now)); err != nil {
				return err
			}
			w.sent, w.sentAt = w.now.Signals, time.Now()
		}
		failed = err != nil
		timer.Reset(w.wait())
	}
}

// watcher is what one caller watches.
type watcher struct {
	server *Server
	period time.Duration
	marks  []signal.Mark
	// now are the newest signals, before those that were measured before them.
	now    signal.Frame
	before []signal.Signal
	// allAt is when all were measured last.
	allAt time.Time
	// measuredAt is when something was.
	measuredAt time.Time
	// notices are the kernel's about memory, heard receives after one; nil: there are
	// none. armed: it tells of every mark that is crossed.
	notices *notice.Notices
	heard   <-chan struct{}
	armed   bool
	// sent was at sentAt; zero is never.
	sent   []signal.Signal
	sentAt time.Time
}

func (s *Server) watcher(r *statsv1.WatchSignalsRequest) (*watcher, error) {
	w := &watcher{server: s, period: defaultPeriod}
	if r.GetPeriod() != nil {
		w.period = r.GetPeriod().AsDuration()
	}
	if w.period < minPeriod {
		return nil, fmt.Errorf("%w: period %s; ask for %s or more", rpcerr.ErrInvalid, w.period, minPeriod)
	}
	if n := len(r.GetMarks()); n > mostMarks {
		return nil, fmt.Errorf("%w: %d marks; give %d or fewer", rpcerr.ErrInvalid, n, mostMarks)
	}
	for _, m := range r.GetMarks() {
		if !(m.GetPercent() >= 0 && m.GetPercent() <= 100) {
			return nil, fmt.Errorf("%w: mark of %s at %v %%; give 0 to 100", rpcerr.ErrInvalid, m.GetSignal(), m.GetPercent())
		}
		w.marks = append(w.marks, signal.Mark{Signal: m.GetSignal(), Quantity: m.GetQuantity(), Percent: m.GetPercent()})
	}
	return w, nil
}

// listen has the kernel tell of memory to whom has a mark of it.
func (w *watcher) listen(log klog.Logger) (stop func()) {
	if !signal.Marked(w.marks) {
		return func() {}
	}
	w.notices = w.server.Collector.Notices(log)
	if w.notices == nil {
		return func() {}
	}
	w.heard = w.notices.Heard()
	return w.notices.Close
}

// measure measures what is due: all, or memory alone.
func (w *watcher) measure(ctx context.Context) error {
	if w.now.Signals == nil || time.Since(w.allAt) >= w.allPeriod() {
		now, err := w.server.Collector.Signals(ctx)
		if err != nil {
			return err
		}
		w.before, w.now, w.allAt = w.now.Signals, now, time.Now()
		return nil
	}
	memory, err := w.server.Collector.MemorySignals()
	if err != nil {
		return err
	}
	w.before, w.now.Signals = w.now.Signals, signal.With(w.now.Signals, memory)
	return nil
}

// allPeriod is between two measurements of all.
func (w *watcher) allPeriod() time.Duration {
	if slices.Contains(signal.Crossed(w.now.Signals, w.marks), true) {
		return minPeriod
	}
	return max(w.period/looksPerPeriod, minPeriod)
}

// news says whether there is something to tell.
func (w *watcher) news() bool {
	if w.sentAt.IsZero() || signal.Moved(w.sent, w.now.Signals) {
		return true
	}
	crossed := signal.Crossed(w.now.Signals, w.marks)
	period := w.period
	if slices.Contains(crossed, true) {
		period = minPeriod
	}
	// Half a look early, so as not to be a whole one late.
	return !slices.Equal(crossed, signal.Crossed(w.sent, w.marks)) || time.Since(w.sentAt) >= max(period-minPeriod/2, minPeriod)
}

// wait is how long until something is due to be measured.
func (w *watcher) wait() time.Duration {
	wait := w.allPeriod()
	if !w.allAt.IsZero() {
		wait -= time.Since(w.allAt)
	}
	if signal.Marked(w.marks) && w.now.Signals != nil {
		switch {
		case signal.Near(w.before, w.now.Signals, w.marks):
			wait = min(wait, nearPeriod)
		case !w.armed:
			wait = min(wait, memoryPeriod)
		}
	}
	if wait <= 0 {
		wait = w.allPeriod() // It was due and could not be measured.
	}
	return wait
}

func (s *Server) frame(f signal.Frame) *statsv1.WatchSignalsResponse {
	out := &statsv1.WatchSignalsResponse{Epoch: s.Epoch, ImagesApart: f.ImagesApart, ContainersApart: f.ContainersApart}
	for _, x := range f.Signals {
		out.Signals = append(out.Signals, &statsv1.Signal{
			Name: x.Name, Available: x.Available, Capacity: x.Capacity, Time: timestamppb.New(x.Time),
		})
	}
	return out
}
