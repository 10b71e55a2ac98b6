package evict

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// errAway is what a reclaim comes to whose podsync is away, killed, or just started.
var errAway = fmt.Errorf("have podsync reclaim: %w: connection reset", rpcerr.ErrUnavailable)

// imagesFrom has the n-th reclaim and those after it free images that are enough; those
// before it podsync never does.
func (w *world) imagesFrom(n int, err error) (calls func() int) {
	made := 0
	w.set(func() {
		w.reclaims = func() {
			w.set(func() {
				if made++; made < n {
					w.reclaimErr = err
				} else {
					w.reclaimErr, w.otherDisk = nil, 100*mi
				}
			})
		}
	})
	return func() int { return made }
}

// anewAfterAReclaim has podsync started anew after the first reclaim, which found nothing; the
// next one frees enough.
func (w *world) anewAfterAReclaim() (calls func() int) {
	made := 0
	w.set(func() {
		w.epoch, w.barren = 1, true
		w.reclaims = func() {
			w.set(func() {
				if made++; made == 1 {
					w.epoch = 2
				} else {
					w.barren, w.otherDisk = false, 100*mi
				}
			})
		}
	})
	return func() int { return made }
}

func TestAPodsyncThatIsKilledWhileItReclaimsIsAskedAgainBeforeAPodGoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk = 420 * mi
		calls := w.imagesFrom(2, errAway)
		then := w.reclaims
		w.set(func() {
			w.reclaims = func() {
				time.Sleep(2 * time.Second)
				then()
				w.set(func() { w.partial = w.reclaimErr != nil })
			}
		})
		w.pass(4 * time.Second)
		w.set(func() { w.partial = false })
		w.pass(30 * time.Second)
		w.wantStops("images can be freed")
		if calls() != 2 {
			t.Errorf("reclaimed %d times", calls())
		}
		if d := w.last(); d.Outcome != Enough {
			t.Errorf("%+v", d)
		}
	})
}

func TestAPodsyncThatDoesNotKnowAllPodsYetIsAskedToReclaimAgainWhenItDoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk = 420 * mi
		calls := w.imagesFrom(2, fmt.Errorf("%w: reclaim: not all pods of the node are known yet", rpcerr.ErrUnavailable))
		w.set(func() { w.partial = true })
		w.pass(8 * time.Second)
		if calls() != 1 {
			t.Errorf("asked %d times while it does not know them", calls())
		}
		w.set(func() { w.partial = false })
		w.pass(30 * time.Second)
		w.wantStops("images can be freed")
	})
}

func TestAPodsyncThatIsKilledWhileItFreesWhatAPodHasLeftIsAskedAgain(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.takes["hog"] = time.Second
		calls := 0
		w.set(func() {
			w.reclaims = func() {
				calls++
				switch calls {
				case 1: // before hog goes: nothing is there
				case 2: // what hog has left
					time.Sleep(500 * time.Millisecond)
					w.set(func() { w.reclaimErr, w.partial = errAway, true })
				default:
					w.set(func() { w.reclaimErr, w.otherDisk = nil, 0 })
				}
			}
		})
		w.pass(freeing + 500*time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() { w.otherDisk = 500 * mi }) // The runtime has its layer.
		w.pass(3 * time.Second)
		w.set(func() { w.partial, w.endings = false, map[types.UID]Ending{} })
		w.pass(30 * time.Second)
		w.wantStops("what hog has left can be freed", "hog")
		for _, d := range w.loop.View().Decisions {
			if d.Outcome == Enough {
				t.Errorf("a pod had to go: %+v", d)
			}
		}
	})
}

// A podsync that was stopped while it reclaimed may have answered what it had done until
// then.
func TestWhatAPodsyncHasReclaimedThatWasStartedAnewSinceIsNotAllThatThereIs(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.otherDisk = 420 * mi
		calls := w.anewAfterAReclaim()
		w.pass(30 * time.Second)
		w.wantStops("images can be freed")
		if calls() != 2 {
			t.Errorf("reclaimed %d times", calls())
		}
	})
}

func TestNobodyIsSparedForLongByAReclaimThatPodsyncNeverDoes(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 950*mi)
		calls := w.imagesFrom(1000, errAway)
		w.pass(15 * time.Second)
		w.wantStops("it was asked again, and again", "hog")
		if calls() < 1+convincing || calls() > 3+convincing {
			t.Errorf("asked %d times", calls())
		}
		if d := w.last(); d.Outcome != Evicted || d.Reclaimed == nil || d.Reclaimed.Error != errAway.Error() {
			t.Errorf("%+v", d)
		}
	})
	in(t, hardDisk(), Config{}, func(w *world) { // It answers, and what it has to do takes too long.
		w.pod("hog", 1, 950*mi)
		w.set(func() {
			w.reclaimErr = fmt.Errorf("%w: no answer", rpcerr.ErrTimeout)
			w.reclaims = func() { time.Sleep(2 * time.Minute) }
		})
		w.pass(3 * time.Minute)
		w.wantStops("while it is asked again")
		w.pass(2 * time.Minute)
		w.wantStops("after another time", "hog")
	})
	in(t, hardDisk(), Config{}, func(w *world) { // Nobody can go at first.
		calls := w.imagesFrom(1000, errAway)
		w.set(func() { w.otherDisk = 950 * mi })
		w.pass(10 * time.Minute)
		if calls() > 60 {
			t.Errorf("asked %d times in ten minutes", calls())
		}
	})
}

func TestMemoryDoesNotWaitForAReclaimThatPodsyncNeverDoes(t *testing.T) {
	settings := hardMemory()
	settings.Hard["nodefs.available"] = hardDisk().Hard["nodefs.available"]
	in(t, settings, Config{}, func(w *world) {
		w.pod("hog", 950*mi, 1)
		w.imagesFrom(1000, errAway)
		w.set(func() { w.otherDisk = 950 * mi })
		w.pass(2 * time.Second)
		w.wantStops("at once", "hog")
	})
}

// killed is a podsync that each reclaim kills.
type killed struct {
	*world
	away     time.Duration
	back     time.Time
	reclaims int
}

func (k *killed) Pods(ctx context.Context) (Pods, error) {
	if time.Now().Before(k.back) {
		return Pods{}, errAway
	}
	return k.world.Pods(ctx)
}

func (k *killed) Reclaim(context.Context, eviction.Reclaim) (Reclaimed, error) {
	if time.Now().Before(k.back) {
		return Reclaimed{}, errAway
	}
	k.mu.Lock()
	k.reclaims++
	k.mu.Unlock()
	time.Sleep(300 * time.Millisecond)
	k.back = time.Now().Add(k.away)
	return Reclaimed{}, errAway
}

func TestAPodsyncThatEachReclaimKillsSparesNobodyForLong(t *testing.T) {
	for away, within := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 15 * time.Second, 10 * time.Second: time.Minute, 30 * time.Second: 2 * time.Minute,
		time.Minute: 3 * time.Minute, 5 * time.Minute: 11 * time.Minute,
	} {
		in(t, hardDisk(), Config{}, func(w *world) {
			k := &killed{world: w, away: away}
			w.loop.deps.Podsync = k
			w.pod("hog", 1, 950*mi)
			w.pass(within)
			w.wantStops(fmt.Sprint("away for ", away), "hog")
			if k.reclaims > 2+convincing { // one more for what it has left
				t.Errorf("away for %s: killed %d times", away, k.reclaims)
			}
		})
	}
}

// Else the first reclaim of another shortage that podsync does not do would count as its last.
func TestWhatPodsyncDidNotReclaimIsForgottenWhenRoomCameByItself(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.set(func() { w.otherDisk, w.reclaimErr = 420*mi, errAway })
		w.pass(2200 * time.Millisecond)
		w.set(func() { w.otherDisk = 0 })
		w.pass(time.Hour)
		w.wantStops("room came by itself")
		w.anewAfterAReclaim()
		w.set(func() { w.reclaimErr, w.otherDisk = nil, 420*mi })
		w.pass(30 * time.Second)
		w.wantStops("images can be freed")
	})
}

// killing has a podsync that each reclaim kills, and that is away for half a second after it.
func (w *world) killing() *killed {
	k := &killed{world: w, away: 500 * time.Millisecond}
	w.loop.deps.Podsync = k
	return k
}

// count is how often it was killed, and how many pods were stopped.
func (k *killed) count() (reclaims, stops int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reclaims, len(k.stops)
}

// A shortage that is over for a moment is the same one again.
func TestWhoLetsGoOfTheDiskForAMomentBeginsNoCountAnewOfWhatPodsyncDoesNotReclaim(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		k := w.killing()
		w.pod("hog", 1, 950*mi)
		for range 12 {
			before, stopped := k.count()
			for reclaims := before; stopped == 0 && reclaims == before; reclaims, stopped = k.count() {
				w.pass(100 * time.Millisecond)
			}
			if stopped > 0 {
				break
			}
			w.set(func() { w.disk["hog"] = 0 })
			w.pass(time.Second)
			w.set(func() { w.disk["hog"] = 950 * mi })
		}
		w.wantStops("within a minute", "hog")
		if n, _ := k.count(); n > 2+convincing {
			t.Errorf("killed %d times", n)
		}
	})
}

// Nobody knows that a shortage is over of which nothing is heard, as while stats is away.
func TestWhatPodsyncDidNotReclaimIsNotForgottenWhileNothingIsHeardOfTheDisk(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		k := w.killing()
		w.pod("hog", 1, 950*mi)
		for range 12 {
			before, stopped := k.count()
			for reclaims := before; stopped == 0 && reclaims == before; reclaims, stopped = k.count() {
				w.pass(100 * time.Millisecond)
			}
			if stopped > 0 {
				break
			}
			w.set(func() { w.disk["hog"] = 0 })
			w.pass(time.Second)
			w.set(func() { w.disk["hog"] = 950 * mi })
			time.Sleep(interval + time.Second)
		}
		w.wantStops("in the end", "hog")
		if n, _ := k.count(); n > 2+convincing {
			t.Errorf("killed %d times", n)
		}
	})
}

func TestWhatPodsyncDidNotReclaimIsForgottenOnceTheShortageWasOverForAWhile(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		k := w.killing()
		w.pod("hog", 1, 950*mi)
		for range 5 {
			w.pass(2500 * time.Millisecond)
			w.set(func() { w.disk["hog"] = 0 })
			w.pass(2*interval + time.Second)
			w.set(func() { w.disk["hog"] = 950 * mi })
		}
		w.wantStops("each is another shortage")
		before, _ := k.count()
		w.pass(15 * time.Second)
		w.wantStops("which does not end", "hog")
		if n, _ := k.count(); n-before < 1+convincing {
			t.Errorf("killed %d times", n-before)
		}
	})
}
