package objects

import (
	"context"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/podsync/internal/cluster/newest"
	"github.com/polylet/polylet/services/podsync/internal/cluster/watchlimit"
)

// serviceList holds all services, cut down to name and spec, by namespace.
type serviceList struct {
	started atomic.Bool
	synced  chan struct{}

	mu    sync.Mutex
	known bool
	err   error
	all   map[string]map[string]*v1.Service
}

func newServiceList() *serviceList {
	return &serviceList{synced: make(chan struct{}), all: map[string]map[string]*v1.Service{}}
}

func (l *serviceList) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *serviceList) in(namespace string) []*v1.Service {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*v1.Service, 0, len(l.all[namespace]))
	for _, s := range l.all[namespace] {
		list = append(list, s)
	}
	return list
}

// followServices keeps a watch of all services until ctx is done; Restored ends one.
func (s *Store) followServices(ctx context.Context) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		s.mu.Lock()
		s.stopServices = stop
		s.mu.Unlock()
		s.watchServices(watching)
		stop()
	}
}

// watchServices follows all services until ctx is done.
func (s *Store) watchServices(ctx context.Context) {
	c := s.client.CoreV1().Services(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l, err := c.List(ctx, o)
			err = answer.List(l, err)
			s.services.failed(ctx, err)
			return l, err
		},
		WatchFuncWithContext: watchlimit.Of(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, o)
			s.services.failed(ctx, err)
			return w, newest.Refused(o, err)
		}),
	}
	reflect(ctx, "services", cache.ToListWatcherWithWatchListSemantics(lw, s.client), &v1.Service{}, s.services)
}

// failed keeps why the watch broke, and logs the first of a row.
func (l *serviceList) failed(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	first := l.err == nil
	l.err = err
	l.mu.Unlock()
	if first {
		klog.FromContext(ctx).Info("Watching services failed, trying again", "err", err)
	}
}

// Transformer cuts services down before any list of them is kept.
func (l *serviceList) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if s, ok := o.(*v1.Service); ok {
			return trimmed(s), nil
		}
		return o, nil
	}
}

func trimmed(s *v1.Service) *v1.Service {
	return &v1.Service{
		TypeMeta: s.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
		},
		Spec: v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports, Type: s.Spec.Type},
	}
}

func (l *serviceList) put(s *v1.Service) {
	if l.all[s.Namespace] == nil {
		l.all[s.Namespace] = map[string]*v1.Service{}
	}
	l.all[s.Namespace][s.Name] = trimmed(s)
}

// Add takes a service from the watch.
func (l *serviceList) Add(o any) error { return l.Update(o) }

// Update takes a service from the watch.
func (l *serviceList) Update(o any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := o.(*v1.Service); ok {
		l.put(s)
	}
	l.err = nil
	return nil
}

// Delete forgets a service.
func (l *serviceList) Delete(o any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := o.(*v1.Service); ok {
		delete(l.all[s.Namespace], s.Name)
		if len(l.all[s.Namespace]) == 0 {
			delete(l.all, s.Namespace)
		}
	}
	return nil
}

// Replace takes the whole list.
func (l *serviceList) Replace(list []any, version string) error {
	if err := answer.Version(version); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = map[string]map[string]*v1.Service{}
	for _, o := range list {
		if s, ok := o.(*v1.Service); ok {
			l.put(s)
		}
	}
	l.err = nil
	if !l.known {
		l.known = true
		close(l.synced)
	}
	return nil
}

// Resync does nothing.
func (l *serviceList) Resync() error { return nil }
