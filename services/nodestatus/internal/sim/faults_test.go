package sim

import (
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// recovery is how long after something was wrong it may have its effect: who follows the
// signals finds that nothing is told after so long.
const recovery = 45 * time.Second

// fault draws something that goes wrong for a while.
func (m *maker) fault(at time.Duration) {
	long := time.Duration(1+m.rng.IntN(90)) * time.Second
	between := func(kind, what string, begin, end func(w *world)) {
		m.add(at, fmt.Sprintf("%s for %s", what, long), func(w *world) {
			w.set(func() {
				begin(w)
				w.fault(kind, long+recovery)
			})
			time.AfterFunc(long, func() { w.set(func() { end(w); w.tell("over:", what) }) })
		})
	}
	switch m.rng.IntN(18) {
	case 0:
		between("stats", "stats is dead", func(w *world) { w.stats.down = true; w.stats.life++ }, func(w *world) {
			w.stats.down, w.namelessUntil = false, time.Now().Add(2*time.Second)
		})
	case 1:
		between("stats", "stats tells nothing", func(w *world) { w.stats.silent = true }, func(w *world) { w.stats.silent = false })
	case 2:
		between("stats", "stats hangs", func(w *world) { w.stats.hangs = true }, func(w *world) { w.stats.hangs = false })
	case 3:
		between("stats", "stats is slow and fails", func(w *world) { w.stats.slow, w.stats.failing = 3*time.Second, 30 }, func(w *world) { w.stats.slow, w.stats.failing = 0, 0 })
	case 4, 5:
		m.hangs(between)
	case 6, 7:
		m.jumps(at)
	case 8:
		between("podsync", "podsync hangs", func(w *world) { w.podsync.hangs = true }, func(w *world) { w.podsync.hangs = false })
	case 9:
		between("podsync", "podsync is slow and fails", func(w *world) { w.podsync.slow, w.podsync.failing = 6*time.Second, 20 }, func(w *world) { w.podsync.slow, w.podsync.failing = 0, 0 })
	case 10:
		when, away := 1+m.rng.IntN(3), long/4
		if when == 3 {
			m.add(at, "podsync dies while it reclaims next", func(w *world) {
				w.set(func() { w.dieAtReclaim, w.dieFor = true, away })
			})
			return
		}
		m.add(at, fmt.Sprint("podsync dies at the next stop, before or after it keeps it: ", when), func(w *world) {
			w.set(func() { w.dieAtStop, w.dieFor = when, away })
		})
	case 11:
		m.add(at, "podsync is killed", func(w *world) { w.set(func() { w.killPodsyncLocked(long / 4) }) })
	case 12:
		between("full", "podsync's disk is full", func(w *world) { w.full = true }, func(w *world) { w.full = false })
	case 13, 16, 17:
		m.nodestatusDies(at, long/6)
	case 14:
		how := fakeapiserver.Partition(1 + m.rng.IntN(2))
		between("apiserver", "the apiserver is away", func(w *world) { w.partitioned = true; w.api.Partition(how) }, func(w *world) { w.partitioned = false; w.api.Heal() })
	case 15:
		between("files", "stats has no time for all open files", func(w *world) { w.manyFiles = true }, func(w *world) { w.manyFiles = false })
	}
}

// hangs has a filesystem not answer for a while.
func (m *maker) hangs(between func(kind, what string, begin, end func(w *world))) {
	images := m.rng.IntN(2) == 0
	set := func(hung bool) func(w *world) {
		return func(w *world) {
			bytes, inodes := nodeBytes, nodeInodes
			if images {
				bytes, inodes = w.machine.imagesOn(false), w.machine.imagesOn(true)
			}
			w.hung[bytes], w.hung[inodes] = hung, hung
		}
	}
	between("hung", "a filesystem does not answer", set(true), set(false))
}

// jumps has figures be wrong for one look.
func (m *maker) jumps(at time.Duration) {
	r, ofSummary := pick(m, memory, nodeBytes, pids), m.rng.IntN(3) == 0
	more := m.rng.IntN(3)
	m.add(at, fmt.Sprintf("for one look figures of %d are wrong", r), func(w *world) {
		w.set(func() {
			wrong := map[good]uint64{r: []uint64{0, w.machine.capacity[r], 2*w.machine.capacity[r] + 1}[more]}
			if ofSummary {
				w.jumpSummary = wrong
			} else {
				w.jumpFrame = wrong
			}
		})
	})
}

// nodestatusDies has it die now, or at its next call to stop a pod, and begin anew.
func (m *maker) nodestatusDies(at, away time.Duration) {
	if m.rng.IntN(2) == 0 {
		m.add(at, "nodestatus is killed", func(w *world) { w.lives.Go(func() { w.restart(away) }) })
		return
	}
	m.add(at, "nodestatus dies at the next stop", func(w *world) { w.set(func() { w.runDiesAtStop, w.dieFor = true, away }) })
}

// calmLocked ends all that is wrong.
func (w *world) calmLocked() {
	w.jumpFrame, w.jumpSummary, w.dieAtStop, w.dieAtReclaim, w.runDiesAtStop = nil, nil, 0, false, false
}
