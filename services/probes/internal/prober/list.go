package prober

import (
	"cmp"
	"slices"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// View is one probe and how it stands.
type View struct {
	Target  probe.Target
	Outcome probe.Outcome
	// LastAttempt is when the last attempt ended; zero before the first.
	LastAttempt time.Time
	// NextAttempt is when the next begins; zero on hold and behind the started gate.
	NextAttempt time.Time
	// Streak is how many equal attempts that count came in a row.
	Streak int
	// LastOK is whether the last attempt succeeded.
	LastOK bool
	// Message is what it said.
	Message string
}

// List returns the probes of the pods that match, in order of namespace, pod,
// container and type. An empty namespace or name matches any.
func (e *Engine) List(namespace, name string) []View {
	e.mu.Lock()
	views := make([]View, 0, len(e.probes))
	for _, p := range e.probes {
		t := p.state.Target()
		if namespace != "" && t.Namespace != namespace || name != "" && t.Name != name {
			continue
		}
		v := View{Target: t, LastAttempt: p.lastAttempt, LastOK: p.lastOK, Message: p.message}
		v.Outcome, _ = p.state.Outcome()
		v.Streak, _ = p.state.Streak()
		if at, _, ok := p.state.Next(); ok {
			v.NextAttempt = at
		}
		views = append(views, v)
	}
	e.mu.Unlock()
	slices.SortFunc(views, func(a, b View) int {
		return cmp.Or(
			cmp.Compare(a.Target.Namespace, b.Target.Namespace),
			cmp.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Target.Key.PodUID, b.Target.Key.PodUID),
			cmp.Compare(a.Target.Key.Container, b.Target.Key.Container),
			cmp.Compare(a.Target.Key.Type, b.Target.Key.Type))
	})
	return views
}
