package evict

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// kept is how many decisions are, and considered how many candidates of each.
	kept       = 100
	considered = 20
	// longWhy bounds what is kept of an error of somebody else's.
	longWhy = 1 << 10
)

// Outcome is what was decided.
type Outcome string

// Outcomes.
const (
	Evicted  Outcome = "evicted"
	Enough   Outcome = "reclaimed"
	Nobody   Outcome = "nobody"
	Held     Outcome = "held"
	Hastened Outcome = "hastened"
	Refused  Outcome = "refused"
)

// Shortage is a threshold that is met, as users are told. Of a pod's own limit Available is what it uses.
type Shortage struct {
	Signal, Threshold, Available string
	Since                        time.Time
	Hard                         bool
	// Due is when its grace period is over; zero: it is, or there is none.
	Due time.Time
}

func shortage(m pressure.Met) Shortage {
	limit, available := eviction.Text(m)
	return Shortage{Signal: m.Signal, Threshold: limit, Available: available, Since: m.Since, Hard: m.Hard}
}

// Pod names one; the zero value is none.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

func ref(pod *v1.Pod) Pod { return Pod{pod.Namespace, pod.Name, pod.UID} }

// Considered is a pod as it was ranked.
type Considered struct {
	Pod
	Usage, Request int64
	Exceeds        bool
	Priority       int32
	Not            string
}

// ReclaimResult is what was freed; Error is why not all of it.
type ReclaimResult struct {
	Containers, Images uint32
	ImageBytes         uint64
	Error              string
}

// Decision is what was done about a shortage, and why.
type Decision struct {
	// Time is when it was decided last, First when the same was for the first time
	// in a row, Count how often.
	Time, First time.Time
	Count       int
	Shortage    Shortage
	Outcome     Outcome
	Why         string
	// Held is what the pod that was chosen holds open that no directory shows, if Why says so.
	Held eviction.Held
	// Reclaimed is nil when nothing was tried.
	Reclaimed  *ReclaimResult
	Candidates []Considered
	// More is how many candidates are not listed.
	More   int
	Chosen Pod
	Grace  time.Duration
}

// holds says that it is also because of what a pod holds open.
func (d *Decision) holds(h eviction.Held) {
	if d.Held = h; h != (eviction.Held{}) {
		d.Why += "; " + h.String()
	}
}

// because puts another reason in the place of the one that there was.
func (d *Decision) because(outcome Outcome, why string) {
	d.Outcome, d.Why, d.Held = outcome, why, eviction.Held{}
}

func (d *Decision) consider(ranked []eviction.Candidate) {
	for i, c := range ranked {
		if i == considered {
			d.More = len(ranked) - i
			return
		}
		d.Candidates = append(d.Candidates, Considered{
			Pod: ref(c.Pod), Usage: c.Usage, Request: c.Request, Exceeds: c.Exceeds, Priority: c.Priority, Not: c.Not,
		})
	}
}

// same says whether two decisions differ in their figures only.
func (d *Decision) same(other *Decision) bool {
	return d.Outcome == other.Outcome && d.Chosen == other.Chosen && d.Shortage.Signal == other.Shortage.Signal &&
		d.Shortage.Since.Equal(other.Shortage.Since) && (d.Outcome == Held || d.Why == other.Why)
}

// records keeps the newest decisions.
type records struct {
	mu   sync.Mutex
	list []Decision // oldest first
}

// add keeps a decision, and says whether it is another than the one before about its
// signal. A disk that is full is a shortage of several, each decided about in its turn:
// those would soon be all that is kept.
func (r *records) add(d Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, before := range slices.Backward(r.list) {
		if before.Shortage.Signal != d.Shortage.Signal {
			continue
		}
		if before.same(&d) {
			d.First, d.Count = before.First, before.Count+1
			r.list = append(slices.Delete(r.list, i, i+1), d)
			return false
		}
		break
	}
	if len(r.list) == kept {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, d)
	return true
}

// note keeps a decision, and logs it unless it is the one before again.
func (l *Loop) note(ctx context.Context, d Decision) {
	if !l.keep(&d) {
		return
	}
	has := "available"
	if eviction.IsLimit(d.Shortage.Signal) {
		has = "used"
	}
	klog.FromContext(ctx).Info("Eviction decision", "outcome", d.Outcome, "signal", d.Shortage.Signal, "threshold", d.Shortage.Threshold,
		has, d.Shortage.Available, "pod", klog.KRef(d.Chosen.Namespace, d.Chosen.Name), "reason", d.Why, "candidates", len(d.Candidates)+d.More)
}

// keep keeps a decision, and says whether it is another than the one before.
func (l *Loop) keep(d *Decision) bool {
	d.Time, d.Count = time.Now(), 1
	d.First = d.Time
	d.Why = bounded(d.Why)
	if d.Reclaimed != nil {
		d.Reclaimed.Error = bounded(d.Reclaimed.Error)
	}
	return l.kept.add(*d)
}

// bounded is what is kept of somebody else's words; whoever is told of them may take
// nothing but UTF-8.
func bounded(text string) string {
	if len(text) <= longWhy {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:longWhy]), "") + " …"
}

// View is how the node stands.
type View struct {
	// Conditions are those that hold.
	Conditions []string
	// Shortages are thresholds that are met and whose grace period is over, the first to
	// be acted upon first; Waits are those that are met and whose grace period runs, the
	// first to be over first.
	Shortages, Waits []Shortage
	// Signals is when the signals were heard last; zero is never since Began, when this
	// run did.
	Signals, Began time.Time
	// Decisions are the newest, oldest first.
	Decisions []Decision
}

// View returns how the node stands.
func (l *Loop) View() View {
	judgement, frame, known := l.deps.Judge.Judge(time.Now())
	out := View{Signals: frame.Heard, Began: l.began}
	if known {
		out.Conditions = judgement.Names()
		for _, m := range eviction.Order(judgement.Due) {
			out.Shortages = append(out.Shortages, shortage(m))
		}
		for _, m := range judgement.Waits {
			s := shortage(m)
			s.Due = m.Since.Add(m.Grace)
			out.Waits = append(out.Waits, s)
		}
		slices.SortStableFunc(out.Waits, func(a, b Shortage) int { return a.Due.Compare(b.Due) })
	}
	l.kept.mu.Lock()
	defer l.kept.mu.Unlock()
	out.Decisions = slices.Clone(l.kept.list)
	return out
}
