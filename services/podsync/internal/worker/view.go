package worker

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/view"
)

// Explain says what a pod waits for and what happened to it.
func (r *Registry) Explain(uid types.UID) (view.Explanation, bool) {
	r.mu.Lock()
	w := r.workers[uid]
	r.mu.Unlock()
	if w == nil {
		return view.Explanation{}, false
	}
	return w.line.explain(), true
}

// longestLine bounds a timeline.
const longestLine = 40

// timeline is what happened to one pod, and what it waits for now. Safe for
// concurrent use.
type timeline struct {
	mu    sync.Mutex
	waits []plan.Wait
	steps []view.Step
}

func (l *timeline) begin(a plan.Action, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.steps) == longestLine {
		l.steps = slices.Delete(l.steps, 0, 1)
	}
	l.steps = append(l.steps, view.Step{At: now, What: string(a.Kind), Object: objectOf(a)})
}

func (l *timeline) end(a plan.Action, began, now time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.steps) - 1; i >= 0; i-- {
		s := &l.steps[i]
		if s.What == string(a.Kind) && s.Object == objectOf(a) && s.At.Equal(began) {
			s.Took = max(now.Sub(began), time.Nanosecond)
			if err != nil {
				s.Error = err.Error()
			}
			return
		}
	}
}

func (l *timeline) wait(waits []plan.Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = waits
}

func (l *timeline) explain() view.Explanation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return view.Explanation{Waits: slices.Clone(l.waits), Timeline: slices.Clone(l.steps)}
}

func objectOf(a plan.Action) string {
	if a.Container != "" {
		return a.Container
	}
	return a.Object
}
