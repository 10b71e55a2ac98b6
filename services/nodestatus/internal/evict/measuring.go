package evict

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// measuring is what pods have on disks being measured, beside the loop: pods decide how
// long that takes, and memory and processes are looked after meanwhile.
type measuring struct {
	// asked is when it was begun, since how old figures may be.
	asked, since time.Time
	done         chan struct{}
	// signal is for what it was begun.
	signal string
	// used are the signals that were decided about by it.
	used map[string]bool

	// The rest, and at, which is when, is set when done is closed.
	summary  *statsapi.Summary
	late     eviction.Late
	unlinked looked
	err      error
	at       time.Time
}

// looked is a look at open files: all is whether there was time for all of them, late are
// the pods of which there was not.
type looked struct {
	files map[types.UID][]eviction.Unlinked
	late  map[types.UID]bool
	all   bool
	err   error
}

// found is what pods use of what is short; but is what is to be said of it. How much is left
// it does not say: that was looked at since.
type found struct {
	figures  eviction.Figures
	unlinked map[types.UID][]eviction.Unlinked
	late     eviction.Late
	but      string
}

func (k *measuring) finished() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// measures says whether disks are being measured.
func (l *Loop) measures() bool { return l.measuring != nil && !l.measuring.finished() }

// measured is what was measured on disks for what is short; nil: it is begun, and the
// loop hears of its end.
func (l *Loop) measured(ctx context.Context, m pressure.Met) *measuring {
	if k := l.measuring; k != nil {
		if !k.finished() {
			return nil
		}
		if l.usable(k, m) {
			k.used[m.Signal] = true
			l.since[m.Signal] = k.since
			return k
		}
	}
	k := &measuring{asked: time.Now(), since: l.sinceOf(m), signal: m.Signal, done: make(chan struct{}), used: map[string]bool{}}
	l.measuring = k
	l.running.Go(func() {
		if k.summary, k.late, k.err = l.deps.Stats.Renewed(ctx, k.since); k.err == nil {
			u := &k.unlinked
			u.files, u.late, u.all, u.err = l.deps.Stats.Unlinked(ctx)
			for uid, files := range u.files {
				u.files[uid] = eviction.Whole(files)
			}
		}
		k.at = time.Now()
		close(k.done)
		l.answered.Set()
	})
	return nil
}

// usable says whether what was measured is new enough to choose a pod for what is short by
// it. Whoever has ended meanwhile is not chosen from, and whether it is short still was
// looked at since. What it was begun for was short at its beginning and is now: that enough
// was left for a moment between makes it no older, or who sees to that would never go.
func (l *Loop) usable(k *measuring, m pressure.Met) bool {
	return !k.used[m.Signal] && (k.signal == m.Signal || !k.since.Before(m.Since)) && time.Since(k.at) < newly
}

// weighing says whether disks are being measured, or a pod may be chosen by what was: a
// look at limits that begins then would have that grow old, and the next one, too.
func (l *Loop) weighing() bool {
	k := l.measuring
	return k != nil && (!k.finished() || len(k.used) == 0 && time.Since(k.at) < newly)
}

// of is what it says of what is short; an error says why nobody is chosen by it.
func (k *measuring) of(m pressure.Met) (f found, err error) {
	if k.err != nil {
		return f, fmt.Errorf("stats does not say what the pods use: %w", k.err)
	}
	if _, short := eviction.Confirm(m, eviction.Observe(k.summary)); !short {
		return f, errEnough
	}
	f.figures = eviction.FiguresOf(k.summary)
	f.late = k.late.With(f.figures, k.since)
	f.unlinked, f.late.Holders, f.but, err = k.unlinked.of(m)
	return f, err
}

var errEnough = errors.New("enough is left since the disks were measured anew")

// of are the files without a name that pods hold open; but is what is to be said where
// that is not all and it is not known of whom. Stats is not waited for for long.
func (u looked) of(m pressure.Met) (files map[types.UID][]eviction.Unlinked, late map[types.UID]bool, but string, err error) {
	switch {
	case u.err == nil && (u.all || len(u.late) > 0):
		return u.files, u.late, "", nil
	case time.Since(m.Since) < layersAge && u.err == nil:
		return nil, nil, "", errors.New("stats had no time to look at all open files: who holds a removed one may not be known")
	case time.Since(m.Since) < layersAge:
		return nil, nil, "", fmt.Errorf("stats does not say who holds removed files open: %w", u.err)
	}
	return u.files, nil, "; not all open files were looked at: another may hold more in files that were removed", nil
}

// sinceOf is how old figures may be by which a pod is chosen: the same until it is, for what
// there was no time to measure is measured next. What was done has its effect in them.
func (l *Loop) sinceOf(m pressure.Met) time.Time {
	now := time.Now()
	if since := l.since[m.Signal]; !since.Before(m.Since) && !since.Before(l.after) && now.Sub(since) < layersAge+newly {
		return since
	}
	since := m.Since
	if since.Before(l.after) {
		since = l.after
	}
	if now.Sub(since).Abs() > newly {
		since = now
	}
	l.since[m.Signal] = since
	return since
}
