package objects

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/cluster/ctxclock"
	"github.com/polylet/polylet/services/podsync/internal/cluster/newest"
	"github.com/polylet/polylet/services/podsync/internal/cluster/watchlimit"
)

// A broken watch is tried again soon at first, for the object may just not be
// allowed to this node yet.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectMax   = 10 * time.Second
)

// reconnect is the same for the reflector's own retries.
func reconnect() *wait.Backoff {
	return &wait.Backoff{Duration: reconnectFirst, Factor: 2, Jitter: 0.5, Steps: 12, Cap: reconnectMax}
}

// startWatchLocked begins the watch of an entry unless it has one or Run does not
// run.
func (s *Store) startWatchLocked(key Key, e *entry) {
	if s.run == nil || e.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.run)
	e.stop = cancel
	s.watches.Add(1)
	go func() {
		defer s.watches.Done()
		defer cancel()
		lw, example := s.listWatch(key, func(err error) { s.failed(ctx, key, e, err) })
		reflect(ctx, key.String(), lw, example, s.sinkFor(key, e))
	}()
}

// Restored begins all watches anew: etcd was restored from an older state, and they would
// go on from versions that its data have not come to, which brings nothing.
func (s *Store) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	for key, e := range s.entries {
		if e.stop != nil {
			e.stop()
			e.stop = nil
			s.startWatchLocked(key, e)
		}
	}
	if s.stopServices != nil {
		s.stopServices()
	}
}

// reflect follows objects with a reflector until ctx is done, and starts over
// when it ends. The reflector says nothing itself: failures are seen, and
// logged once, where the calls are made.
func reflect(ctx context.Context, name string, lw cache.ListerWatcher, example runtime.Object, into cache.ReflectorStore) {
	silent := logr.Discard()
	r := cache.NewReflectorWithOptions(lw, example, into, cache.ReflectorOptions{
		Logger: &silent, Name: name, Backoff: reconnect(), Clock: ctxclock.New(ctx),
	})
	quiet := klog.NewContext(ctx, silent)
	again := backoff.New(backoff.Config{Initial: reconnectFirst, Max: reconnectMax, Jitter: 0.3, ResetAfter: time.Minute})
	for ctx.Err() == nil {
		_ = r.ListAndWatchWithContext(quiet) // told of through lw
		if again.Wait(ctx) != nil {
			return
		}
	}
}

// calls are how objects of a kind are listed and watched, and an example of one.
type calls struct {
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	follow  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	example runtime.Object
}

// callsOf are those of a key's kind.
func (s *Store) callsOf(key Key) calls {
	core := s.client.CoreV1()
	switch key.Kind {
	case ConfigMap:
		c := core.ConfigMaps(key.Namespace)
		return calls{lists(c.List), c.Watch, &v1.ConfigMap{}}
	case Secret:
		c := core.Secrets(key.Namespace)
		return calls{lists(c.List), c.Watch, &v1.Secret{}}
	case RuntimeClass:
		c := s.client.NodeV1().RuntimeClasses()
		return calls{lists(c.List), c.Watch, &nodev1.RuntimeClass{}}
	case CSIDriver:
		c := s.client.StorageV1().CSIDrivers()
		return calls{lists(c.List), c.Watch, &storagev1.CSIDriver{}}
	case ClusterTrustBundle:
		return s.trustBundles()
	case PodCertificateRequest:
		return s.certificateRequests()
	default:
		c := core.Nodes()
		return calls{lists(c.List), c.Watch, &v1.Node{}}
	}
}

// listWatch is how one object is listed and watched, by its name, or all of a kind.
func (s *Store) listWatch(key Key, failed func(error)) (cache.ListerWatcher, runtime.Object) {
	selector := ""
	if key.Name != "" {
		selector = fields.OneTermEqualSelector("metadata.name", key.Name).String()
	}
	of := s.callsOf(key)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			release, err := s.asking.Acquire(ctx, key.Namespace)
			if err != nil {
				return nil, err
			}
			defer release()
			l, err := of.list(ctx, o)
			if err != nil {
				failed(err)
			}
			return l, err
		},
		WatchFuncWithContext: watchlimit.Of(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			release, err := s.asking.Acquire(ctx, key.Namespace)
			if err != nil {
				return nil, err
			}
			defer release() // the watch goes on
			w, err := of.follow(ctx, o)
			if err != nil {
				failed(err)
			}
			return w, newest.Refused(o, err)
		}),
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, s.client), of.example
}

// lists makes a typed List an untyped one.
func lists[L interface {
	runtime.Object
	metav1.ListInterface
}](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l, err := list(ctx, o)
		return l, answer.List(l, err)
	}
}

// failed keeps why a watch broke, and logs the first of a row.
func (s *Store) failed(ctx context.Context, key Key, e *entry, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	first := e.err == nil
	e.err = err
	if !e.isAway && !answered(err) {
		e.isAway = true
		close(e.away)
	}
	s.mu.Unlock()
	if first {
		klog.FromContext(ctx).Info("Watching an object failed, trying again", "object", key.String(), "err", err)
	}
}

// answered says whether an error is the apiserver's own. Of those, some pass
// within a moment: a right that the node has not got yet.
func answered(err error) bool {
	if errors.Is(err, ErrNotServed) {
		return false // nor will it be within a moment
	}
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// stored takes an object (nil when it is gone) from a watch and tells the subscribers.
func (s *Store) stored(key Key, e *entry, object runtime.Object) {
	s.mu.Lock()
	changed := (e.known || e.missed) && !sameVersion(e.object, object)
	e.object, e.err = object, nil
	if !e.known {
		e.known = true
		close(e.synced)
	}
	if immutable(object) && e.stop != nil {
		e.stop() // it cannot change any more; stop stays set, so reads use memory
	}
	holders := make([]types.UID, 0, len(e.holders))
	for uid := range e.holders {
		holders = append(holders, uid)
	}
	subscribers := s.subscribers
	s.mu.Unlock()
	if !changed {
		return
	}
	for _, f := range subscribers {
		f(key, holders)
	}
}

func sameVersion(a, b runtime.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	ma, errA := meta.Accessor(a)
	mb, errB := meta.Accessor(b)
	return errA == nil && errB == nil && ma.GetUID() == mb.GetUID() &&
		ma.GetResourceVersion() != "" && ma.GetResourceVersion() == mb.GetResourceVersion()
}

func immutable(object runtime.Object) bool {
	switch o := object.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// sinkFor takes what the watch of an entry brings.
func (s *Store) sinkFor(key Key, e *entry) cache.ReflectorStore {
	one := &sink{store: s, key: key, entry: e}
	switch key.Kind {
	case ClusterTrustBundle:
		return &allSink[certificatesv1beta1.ClusterTrustBundle, *certificatesv1beta1.ClusterTrustBundle]{
			one, map[string]*certificatesv1beta1.ClusterTrustBundle{}, bundleList,
		}
	case PodCertificateRequest:
		return &allSink[certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.PodCertificateRequest]{
			one, map[string]*certificatesv1beta1.PodCertificateRequest{}, requestList,
		}
	}
	return one
}

// sink takes what a reflector brings of one object.
type sink struct {
	store *Store
	key   Key
	entry *entry
}

func (k *sink) Add(o any) error { return k.Update(o) }
func (k *sink) Resync() error   { return nil }

func (k *sink) Delete(o any) error {
	if err := k.is(o); err != nil {
		return err
	}
	k.store.stored(k.key, k.entry, nil)
	return nil
}

func (k *sink) Update(o any) error {
	if err := k.is(o); err != nil {
		return err
	}
	k.store.stored(k.key, k.entry, slim(o))
	return nil
}

// is returns an error when a watch has brought something else.
func (k *sink) is(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	return answer.Object(m, k.key.Name, nil)
}

// Replace takes a list; a field selector of one name gives one or none. The
// name is compared for servers that do not know the selector.
func (k *sink) Replace(list []any, version string) error {
	if err := answer.Version(version); err != nil {
		return err
	}
	var found runtime.Object
	for _, o := range list {
		if m, err := meta.Accessor(o); err == nil && m.GetName() == k.key.Name {
			found = slim(o)
		}
	}
	k.store.stored(k.key, k.entry, found)
	return nil
}

// slim drops what nobody reads. The object is the watch's own.
func slim(o any) runtime.Object {
	object, ok := o.(runtime.Object)
	if !ok {
		return nil
	}
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object
}
