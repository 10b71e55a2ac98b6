package volume

import (
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

const (
	// toldAgain is how often a pod's owner is told of a volume that goes on to fail.
	toldAgain = 2 * time.Minute
	// toldOther is how soon that it fails otherwise.
	toldOther = 10 * time.Second
)

// Stale are the volumes that pods go on with as they are, since what changes beside the pod
// cannot be brought into them: a ConfigMap is gone, a token is refused, a driver that wants its
// volumes published again does not publish them. A nil one keeps nothing. Safe for concurrent
// use.
type Stale struct {
	events Events

	mu sync.Mutex
	of map[types.UID]map[string]stale
}

type stale struct {
	podstate.StaleVolume
	// said is what the pod's owner was told last, and told when.
	said string
	told time.Time
}

// NewStale makes one that tells pods' owners.
func NewStale(events Events) *Stale {
	return &Stale{events: events, of: map[types.UID]map[string]stale{}}
}

// Failed says that a volume could not be brought up to date, and when that is tried again. The
// pod's owner hears of it as with a kubelet, whose mounts are done anew then. pv is what the
// PersistentVolume is called that it is; empty for none.
func (s *Stale) Failed(pod *v1.Pod, volume, pv string, err error, retry time.Time) {
	if s == nil {
		return
	}
	failed := podstate.VolumeErrors{{Volume: volume, PV: pv, Err: err, Stands: true}}
	text, now := failed.Error(), time.Now()
	s.mu.Lock()
	before, known := s.of[pod.UID][volume]
	entry := stale{podstate.StaleVolume{Volume: volume, Why: text, Since: now, Retry: retry}, text, now}
	tell := true
	if known {
		entry.Since = before.Since
		since := now.Sub(before.told)
		if tell = since >= toldAgain || since >= toldOther && !reason.Alike(before.said, text); !tell {
			entry.said, entry.told = before.said, before.told
		}
	}
	if s.of[pod.UID] == nil {
		s.of[pod.UID] = map[string]stale{}
	}
	s.of[pod.UID][volume] = entry
	s.mu.Unlock()
	if tell && s.events != nil {
		s.events.Pod(pod, v1.EventTypeWarning, failed.EventReason(), text)
	}
}

// Good says that a volume is up to date, or that nobody tries any more to make it so.
func (s *Stale) Good(uid types.UID, volume string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.of[uid], volume); len(s.of[uid]) == 0 {
		delete(s.of, uid)
	}
}

// Forget is for a pod whose volumes are taken down.
func (s *Stale) Forget(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, uid)
}

// Of are those of a pod, by name.
func (s *Stale) Of(uid types.UID) []podstate.StaleVolume {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []podstate.StaleVolume
	for _, one := range s.of[uid] {
		all = append(all, one.StaleVolume)
	}
	slices.SortFunc(all, func(a, b podstate.StaleVolume) int { return strings.Compare(a.Volume, b.Volume) })
	return all
}
