package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/polylet/polylet/internal/answer"
)

// read gives a held object from memory, waiting for its first answer unless the
// apiserver is away, and any other straight from the apiserver.
func read[T runtime.Object](ctx context.Context, s *Store, key Key) (T, error) {
	var none T
	object, err := s.read(ctx, key)
	if err != nil {
		return none, err
	}
	typed, ok := object.(T)
	if !ok {
		return none, fmt.Errorf("read %s: the apiserver sent a %T", key, object)
	}
	return typed, nil
}

func (s *Store) read(ctx context.Context, key Key) (runtime.Object, error) {
	if s.client == nil {
		return nil, fmt.Errorf("read %s: %w", key, ErrStandalone)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	s.mu.Lock()
	e := s.entries[key]
	watched := e != nil && e.stop != nil
	s.mu.Unlock()
	if !watched {
		object, err := s.get(ctx, key)
		if err != nil {
			s.miss(key)
		}
		return object, err
	}
	select {
	case <-e.synced:
	case <-e.away: // whoever holds it is told when it is there
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.known && e.object != nil:
		return e.object, nil
	case e.known:
		return nil, notFound(key)
	case e.err != nil:
		e.missed = true
		return nil, fmt.Errorf("read %s: %w; it is tried again by itself", key, e.err)
	default:
		e.missed = true
		return nil, fmt.Errorf("read %s: the apiserver has not answered: %w; it is tried again by itself", key, context.Cause(ctx))
	}
}

// miss notes that whoever holds an object whose watch has not begun did not get
// it: the watch's first answer is news.
func (s *Store) miss(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		e.missed = e.missed || !e.known
	}
}

// get asks the apiserver once.
func (s *Store) get(ctx context.Context, key Key) (runtime.Object, error) {
	return s.getFor(ctx, key.Namespace, key)
}

// getFor is get for the pods of a namespace, which need not be the object's.
func (s *Store) getFor(ctx context.Context, namespace string, key Key) (runtime.Object, error) {
	var object interface {
		runtime.Object
		metav1.Object
	}
	give, err := s.reading.Acquire(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("read %s: many reads of its namespace are under way: %w; it is tried again by itself", key, err)
	}
	defer give()
	switch key.Kind {
	case ConfigMap:
		object, err = s.client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	case Secret:
		object, err = s.client.CoreV1().Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	case RuntimeClass:
		object, err = s.client.NodeV1().RuntimeClasses().Get(ctx, key.Name, metav1.GetOptions{})
	case ClusterTrustBundle, PodCertificateRequest:
		all, err := s.callsOf(key).list(ctx, metav1.ListOptions{})
		return all, unread(key, err)
	case CSIDriver:
		object, err = s.client.StorageV1().CSIDrivers().Get(ctx, key.Name, metav1.GetOptions{})
	case Node:
		object, err = s.client.CoreV1().Nodes().Get(ctx, key.Name, metav1.GetOptions{})
	case PersistentVolumeClaim:
		object, err = s.client.CoreV1().PersistentVolumeClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	case PersistentVolume:
		object, err = s.client.CoreV1().PersistentVolumes().Get(ctx, key.Name, metav1.GetOptions{})
	case VolumeAttachment:
		object, err = s.client.StorageV1().VolumeAttachments().Get(ctx, key.Name, metav1.GetOptions{})
	default:
		return nil, fmt.Errorf("read %s: this kind is not kept", key)
	}
	if err = unread(key, answer.Object(object, key.Name, err)); err != nil {
		return nil, err
	}
	return object, nil
}

// unread is what readers are told of an error.
func unread(key Key, err error) error {
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, ErrNotServed):
		return notFound(key)
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// notFound spells the error as Kubernetes users know it: configmap "x" not found.
func notFound(key Key) error {
	group := v1.GroupName
	switch key.Kind {
	case RuntimeClass:
		group = nodev1.GroupName
	case CSIDriver, VolumeAttachment:
		group = storagev1.GroupName
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: string(key.Kind)}, key.Name)
}

// Services lists the services of a namespace.
func (s *Store) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	if s.client == nil {
		return nil, fmt.Errorf("list the services of namespace %q: %w", namespace, ErrStandalone)
	}
	if !s.services.started.Load() {
		return s.listServices(ctx, namespace)
	}
	timer := time.NewTimer(s.cfg.ReadTimeout)
	defer timer.Stop()
	select {
	case <-s.services.synced:
		return s.services.in(namespace), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("list the services of namespace %q: %w", namespace, context.Cause(ctx))
	case <-timer.C:
		err := s.services.lastError()
		if err == nil {
			err = errors.New("the apiserver has not answered")
		}
		return nil, fmt.Errorf("list the services of namespace %q: %w; it is tried again by itself", namespace, err)
	}
}

func (s *Store) listServices(ctx context.Context, namespace string) ([]*v1.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	list, err := s.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err := answer.List(list, err); err != nil {
		return nil, fmt.Errorf("list the services of namespace %q: %w", namespace, err)
	}
	services := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return services, nil
}
