package server

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// How many sessions may wait whose client has left, in all and of one namespace: as
// many as the gateway has streams of one, so that all of them may leave at once. A
// command that may be that of a session which goes on is waited for as long as that
// does, and each waits in a call: who may exec into one pod could else take all calls
// that the gateway may have here.
const (
	mostLeaving      = 416
	mostLeavingOfOne = 384
)

// errGivenUp ends the wait of a session for which there is no place any more.
var errGivenUp = errors.New("many sessions whose clients have left wait: this one's command may be left in its container")

// leaving are the sessions whose client has left. The zero value is ready; safe for
// concurrent use.
type leaving struct {
	mu  sync.Mutex
	all []*leaver // the one that waits longest first
}

type leaver struct {
	whose string
	end   context.CancelCauseFunc
}

// begin counts a session of somebody's. Of who has most, those that wait longest are
// given up when there are too many: by errGivenUp, the cause of the end of what it
// returns.
func (l *leaving) begin(ctx context.Context, whose string) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	one := &leaver{whose, end}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
	if of := l.countLocked(); of[whose] > mostLeavingOfOne {
		l.giveUpLocked(whose)
	} else if len(l.all) > mostLeaving {
		most := whose
		for name, n := range of {
			if n > of[most] {
				most = name
			}
		}
		l.giveUpLocked(most)
	}
	return ctx, func() {
		end(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(other *leaver) bool { return other == one })
	}
}

// countLocked is how many are whose.
func (l *leaving) countLocked() map[string]int {
	of := map[string]int{}
	for _, one := range l.all {
		of[one.whose]++
	}
	return of
}

// giveUpLocked ends the wait of somebody's first.
func (l *leaving) giveUpLocked(whose string) {
	i := slices.IndexFunc(l.all, func(one *leaver) bool { return one.whose == whose })
	l.all[i].end(errGivenUp)
	l.all = slices.Delete(l.all, i, i+1)
}
