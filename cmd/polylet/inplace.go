package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// inPlace has a service take, while it runs, those fields of another configuration that it
// can; for all others it starts again. A nil one takes none.
type inPlace struct {
	service string
	loaded  *kubeletconfig.Loaded // with what it was started

	mu     sync.Mutex
	takers []taker
	now    configslice.Fields // that are in effect
	failed uint64             // the generation that could not be taken, and was said
}

// taker takes some fields.
type taker struct {
	fields []string
	take   func(next *kubeletconfig.Loaded) error
}

type inPlaceKey struct{}

// withInPlace makes one that takes what all services take, for whoever knows more to add to.
func withInPlace(ctx context.Context, service string, loaded *kubeletconfig.Loaded) context.Context {
	p := &inPlace{service: service, loaded: loaded, now: loaded.Fields()}
	p.add(takeVerbosity, verbosityFields()...)
	return context.WithValue(ctx, inPlaceKey{}, p)
}

// inPlaceOf is the one of ctx; nil when it has none.
func inPlaceOf(ctx context.Context) *inPlace {
	p, _ := ctx.Value(inPlaceKey{}).(*inPlace)
	return p
}

// add says who takes fields. Until then the service starts again for them.
func (p *inPlace) add(take func(next *kubeletconfig.Loaded) error, fields ...string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takers = append(p.takers, taker{fields: fields, take: take})
}

// runs takes what it can of what was handed over last, and says with what the service runs
// then: whoever hands over asks for that. So nothing need be watched.
func (p *inPlace) runs() (generation uint64, checksum string) {
	p.takes(klog.Background())
	return p.loaded.Runs()
}

// takes takes what was handed over last. False: it is something for which the service has
// to start again.
func (p *inPlace) takes(log klog.Logger) bool {
	if p == nil {
		return false
	}
	next, err := p.loaded.Next()
	if err != nil || next == nil {
		return err == nil
	}
	fields := next.Fields()
	p.mu.Lock()
	defer p.mu.Unlock()
	newest, _ := next.Runs()
	if runs, _ := p.loaded.Runs(); newest < runs { // who asks at the same time has read a newer one
		return true
	}
	var changes []configslice.Change
	for _, c := range configslice.Difference(p.now, fields) {
		if slices.Contains(c.Owners, p.service) {
			changes = append(changes, c)
		}
	}
	takers := p.takersOfLocked(changes)
	if takers == nil {
		return false
	}
	var errs []error
	for _, t := range takers {
		errs = append(errs, t.take(next))
	}
	if err := errors.Join(errs...); err != nil {
		if p.failed != newest {
			log.Error(err, "Another configuration could not be taken while this service runs", "generation", newest)
		}
		p.failed = newest
		return false
	}
	p.now = fields
	p.loaded.Take(next)
	log.Info("Another configuration is taken while this service runs", "changes", configslice.Texts(changes))
	return true
}

// takersOfLocked are those of all changes; nil when one has none.
func (p *inPlace) takersOfLocked(changes []configslice.Change) []taker {
	out := []taker{}
	used := map[int]bool{}
	for _, c := range changes {
		i := slices.IndexFunc(p.takers, func(t taker) bool { return slices.Contains(t.fields, c.Path) })
		if i < 0 || !c.InPlace {
			return nil
		}
		if !used[i] {
			used[i], out = true, append(out, p.takers[i])
		}
	}
	return out
}

// verbosityFields are what takeVerbosity takes, eventFields what eventsClient does, and
// limitFields what podsync takes by takeLimits.
func verbosityFields() []string { return []string{"logging.verbosity"} }

func eventFields() []string { return []string{"eventBurst", "eventRecordQPS"} }

func limitFields() []string {
	return []string{"containerLogMaxFiles", "containerLogMaxSize", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMaximumGCAge", "imageMinimumGCAge"}
}

func takeVerbosity(next *kubeletconfig.Loaded) error {
	_, err := daemon.SetVerbosity(int32(next.Config.Logging.Verbosity)) //nolint:gosec // Validated.
	return err
}
