package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrNotServed says that the apiserver does not know of a kind at all.
var ErrNotServed = errors.New("not served")

// unserved finds out whether an error comes of an apiserver that does not serve a
// resource of certificates.k8s.io/v1beta1, which has a gate there. A node is refused then
// before it is looked what it asks for.
func (s *Store) unserved(ctx context.Context, resource, gate string, err error) error {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	version := certificatesv1beta1.SchemeGroupVersion.String()
	var served metav1.APIResourceList
	asked := s.client.Discovery().RESTClient().Get().AbsPath("/apis", version).Do(ctx).Into(&served)
	there := slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
	if there || asked != nil && !apierrors.IsNotFound(asked) {
		return err
	}
	return fmt.Errorf("the apiserver does not serve %s of %s; start it with --feature-gates=%s=true and --runtime-config=%s/%s=true: %w: %w", resource, version, gate, version, resource, ErrNotServed, err)
}

// allSink takes what a reflector brings of all objects of a kind, and stores them as one
// list, which is never changed.
type allSink[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}] struct {
	*sink
	all    map[string]P
	listed func([]T) runtime.Object
}

func (k *allSink[T, P]) Add(o any) error { return k.Update(o) }

func (k *allSink[T, P]) Update(o any) error {
	k.put(o)
	return k.keep()
}

func (k *allSink[T, P]) put(o any) {
	if one, ok := slim(o).(P); ok {
		k.all[one.GetNamespace()+"/"+one.GetName()] = one
	}
}

func (k *allSink[T, P]) Delete(o any) error {
	if one, ok := o.(P); ok {
		delete(k.all, one.GetNamespace()+"/"+one.GetName())
	}
	return k.keep()
}

func (k *allSink[T, P]) Replace(list []any, _ string) error {
	clear(k.all)
	for _, o := range list {
		k.put(o)
	}
	return k.keep()
}

func (k *allSink[T, P]) keep() error {
	list := make([]T, 0, len(k.all))
	for _, name := range slices.Sorted(maps.Keys(k.all)) {
		list = append(list, *k.all[name])
	}
	k.store.stored(k.key, k.entry, k.listed(list))
	return nil
}
