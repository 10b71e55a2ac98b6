package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/wake"
)

// graphTimeout is how long an object is asked for that the node may not read: the
// apiserver learns a moment after the pod, or the binding, that it may.
const graphTimeout = 2 * time.Second

// Claim reads a claim of a pod's from the apiserver, and ends what the pod awaits of it.
// The error is apierrors.IsNotFound when it does not exist.
func (s *Store) Claim(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return readNow[*v1.PersistentVolumeClaim](ctx, s, uid, namespace, Key{Kind: PersistentVolumeClaim, Namespace: namespace, Name: name})
}

// PersistentVolume reads the volume that is bound to a claim of a pod of this namespace;
// see Claim.
func (s *Store) PersistentVolume(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolume, error) {
	return readNow[*v1.PersistentVolume](ctx, s, uid, namespace, Key{Kind: PersistentVolume, Name: name})
}

// VolumeAttachment reads how a volume of a pod of this namespace is attached; see Claim.
func (s *Store) VolumeAttachment(ctx context.Context, uid types.UID, namespace, name string) (*storagev1.VolumeAttachment, error) {
	return readNow[*storagev1.VolumeAttachment](ctx, s, uid, namespace, Key{Kind: VolumeAttachment, Name: name})
}

func readNow[T runtime.Object](ctx context.Context, s *Store, uid types.UID, namespace string, key Key) (T, error) {
	var none T
	if s.client == nil {
		return none, fmt.Errorf("read %s: %w", key, ErrStandalone)
	}
	s.unawait(uid, namespace, key)
	object, err := s.getWithRetry(ctx, namespace, key)
	if err != nil {
		return none, err
	}
	return object.(T), nil
}

// getWithRetry asks for an object, and again for a while when the node may not read it yet.
func (s *Store) getWithRetry(ctx context.Context, namespace string, key Key) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	again := backoff.New(backoff.Config{Initial: reconnectFirst, Max: reconnectMax, Jitter: 0.3})
	for began := time.Now(); ; {
		object, err := s.getFor(ctx, namespace, key)
		if !apierrors.IsForbidden(err) || time.Since(began) >= graphTimeout || again.Wait(ctx) != nil {
			return object, err
		}
	}
}

// Await asks for an object again and again, ever more rarely, until it is another than
// the pod has seen (nil for none), and then tells those who subscribed, once: what
// changed may be what the pod needs. Release ends it, and the pod's next reading.
func (s *Store) Await(uid types.UID, namespace string, key Key, seen runtime.Object) {
	if s.client == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waits[namespace]
	if w == nil {
		w = &waits{of: map[Key]*awaited{}, news: wake.New()}
		s.waits[namespace] = w
	}
	version, delay := versionOf(seen), firstAsked
	if was := s.reread[uid][key]; was.delay > 0 && was.version == version {
		delay = was.delay
	}
	delete(s.reread[uid], key)
	next := time.Now().Add(delay)
	one := w.of[key]
	if one == nil {
		one = &awaited{holders: map[types.UID]string{}, next: next, delay: delay}
		w.of[key] = one
	}
	one.holders[uid] = version
	if next.Before(one.next) {
		one.next = next
	}
	one.delay = min(one.delay, delay)
	s.startAskingLocked(namespace, w)
	w.news.Set()
}

func (s *Store) unawait(uid types.UID, namespace string, key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waits[namespace]
	if w == nil {
		return
	}
	if one := w.of[key]; one != nil {
		if version, holds := one.holders[uid]; holds {
			if s.reread[uid] == nil {
				s.reread[uid] = map[Key]reread{}
			}
			s.reread[uid][key] = reread{version, one.delay}
		}
	}
	w.drop(key, uid)
}

// reread is how a pod awaited an object until it read it once more: when that brought
// nothing new, it goes on waiting as before.
type reread struct {
	version string
	delay   time.Duration
}

// An object that is awaited is asked for soon at first, and then in proportion to how
// long it has been awaited. All of a namespace together are asked for no more often
// than each pause: its pods may name thousands of claims that will never be.
const (
	firstAsked = 100 * time.Millisecond
	mostAsked  = 5 * time.Second
	askPause   = 50 * time.Millisecond
)

// waits are the objects that pods of a namespace await, guarded by Store.mu.
type waits struct {
	of     map[Key]*awaited
	news   wake.Signal // something is awaited anew
	asking bool        // somebody asks
}

// awaited is one object that pods wait for.
type awaited struct {
	holders map[types.UID]string // the version that each has seen
	next    time.Time
	delay   time.Duration
}

func (w *waits) drop(key Key, uid types.UID) {
	one := w.of[key]
	if one == nil {
		return
	}
	if delete(one.holders, uid); len(one.holders) == 0 {
		delete(w.of, key)
	}
}

func (w *waits) forget(uid types.UID) {
	for key := range w.of {
		w.drop(key, uid)
	}
}

// soonest is what is to be asked for first.
func (w *waits) soonest() (key Key, at time.Time) {
	for k, one := range w.of {
		if at.IsZero() || one.next.Before(at) {
			key, at = k, one.next
		}
	}
	return key, at
}

// startAskingLocked asks for what is awaited in a namespace unless somebody does or Run does
// not run.
func (s *Store) startAskingLocked(namespace string, w *waits) {
	if s.run == nil || w.asking {
		return
	}
	w.asking = true
	ctx := s.run
	s.watches.Add(1)
	go func() {
		defer s.watches.Done()
		s.ask(ctx, namespace, w)
	}()
}

// ask asks until nothing is awaited any more.
func (s *Store) ask(ctx context.Context, namespace string, w *waits) {
	var free time.Time // when the next may be asked for
	for {
		key, due := s.nextAsked(namespace, w)
		if due.IsZero() {
			return
		}
		if due.Before(free) {
			due = free
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.news: // something may be due earlier
			timer.Stop()
			continue
		case <-timer.C:
		}
		s.askFor(ctx, namespace, w, key)
		free = time.Now().Add(askPause)
	}
}

// nextAsked is what is to be asked for and when; the zero time when that is nothing,
// and nobody asks any more.
func (s *Store) nextAsked(namespace string, w *waits) (Key, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, at := w.soonest()
	if at.IsZero() {
		w.asking = false
		delete(s.waits, namespace)
	}
	return key, at
}

// askFor asks for one object and tells those who have seen another.
func (s *Store) askFor(ctx context.Context, namespace string, w *waits, key Key) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	object, err := s.getFor(limited, namespace, key)
	cancel()
	var told []types.UID
	s.mu.Lock()
	one := w.of[key]
	if one == nil {
		s.mu.Unlock()
		return
	}
	if err == nil || apierrors.IsNotFound(err) {
		version := versionOf(object)
		for uid, seen := range one.holders {
			if seen != version {
				told = append(told, uid)
				w.drop(key, uid)
			}
		}
	}
	one.delay = min(one.delay+one.delay/4, mostAsked)
	one.next = time.Now().Add(one.delay)
	subscribers := s.subscribers
	s.mu.Unlock()
	if len(told) == 0 || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	for _, f := range subscribers {
		f(key, told)
	}
}

// versionOf tells the states of one name apart; empty for none.
func versionOf(object runtime.Object) string {
	if object == nil {
		return ""
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return string(m.GetUID()) + "/" + m.GetResourceVersion()
}
