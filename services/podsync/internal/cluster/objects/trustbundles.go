package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/internal/answer"
)

// errNotServed says that the apiserver has no trust bundles at all.
var errNotServed = errors.New("the apiserver does not serve ClusterTrustBundles of certificates.k8s.io/v1beta1; start it with --feature-gates=ClusterTrustBundle=true and --runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")

// TrustBundles are all trust bundles of the cluster, in the order of their names. Only
// those that a held pod refers to are kept; else they are read.
func (s *Store) TrustBundles(ctx context.Context) ([]certificatesv1beta1.ClusterTrustBundle, error) {
	list, err := read[*certificatesv1beta1.ClusterTrustBundleList](ctx, s, Key{Kind: ClusterTrustBundle})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// trustBundles is how they are listed and watched.
func (s *Store) trustBundles() (list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error), example runtime.Object,
) {
	c := s.client.CertificatesV1beta1().ClusterTrustBundles()
	list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l, err := c.List(ctx, o)
		return l, s.unserved(ctx, answer.List(l, err))
	}
	follow = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := c.Watch(ctx, o)
		return w, s.unserved(ctx, err)
	}
	return list, follow, &certificatesv1beta1.ClusterTrustBundle{}
}

// unserved finds out whether an error comes of an apiserver that does not serve trust
// bundles. A node is refused then before it is looked what it asks for.
func (s *Store) unserved(ctx context.Context, err error) error {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	var served metav1.APIResourceList
	asked := s.client.Discovery().RESTClient().Get().AbsPath("/apis", certificatesv1beta1.SchemeGroupVersion.String()).Do(ctx).Into(&served)
	there := slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "clustertrustbundles" })
	if there || asked != nil && !apierrors.IsNotFound(asked) {
		return err
	}
	return fmt.Errorf("%w: %w", errNotServed, err)
}

// bundleSink takes what a reflector brings of all trust bundles, and stores them as
// one list, which is never changed.
type bundleSink struct {
	*sink
	all map[string]*certificatesv1beta1.ClusterTrustBundle
}

func (k *bundleSink) Add(o any) error { return k.Update(o) }

func (k *bundleSink) Update(o any) error {
	if b, ok := slim(o).(*certificatesv1beta1.ClusterTrustBundle); ok {
		k.all[b.Name] = b
	}
	return k.keep()
}

func (k *bundleSink) Delete(o any) error {
	if b, ok := o.(*certificatesv1beta1.ClusterTrustBundle); ok {
		delete(k.all, b.Name)
	}
	return k.keep()
}

func (k *bundleSink) Replace(list []any, _ string) error {
	clear(k.all)
	for _, o := range list {
		if b, ok := slim(o).(*certificatesv1beta1.ClusterTrustBundle); ok {
			k.all[b.Name] = b
		}
	}
	return k.keep()
}

func (k *bundleSink) keep() error {
	list := &certificatesv1beta1.ClusterTrustBundleList{Items: make([]certificatesv1beta1.ClusterTrustBundle, 0, len(k.all))}
	for _, b := range k.all {
		list.Items = append(list.Items, *b)
	}
	slices.SortFunc(list.Items, func(a, b certificatesv1beta1.ClusterTrustBundle) int { return strings.Compare(a.Name, b.Name) })
	k.store.stored(k.key, k.entry, list)
	return nil
}
