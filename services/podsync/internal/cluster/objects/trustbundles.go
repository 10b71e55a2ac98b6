package objects

import (
	"context"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/internal/answer"
)

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
func (s *Store) trustBundles() calls {
	c := s.client.CertificatesV1beta1().ClusterTrustBundles()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l, err := c.List(ctx, o)
		return l, s.unserved(ctx, "clustertrustbundles", "ClusterTrustBundle", answer.List(l, err))
	}
	follow := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := c.Watch(ctx, o)
		return w, s.unserved(ctx, "clustertrustbundles", "ClusterTrustBundle", err)
	}
	return calls{list, follow, &certificatesv1beta1.ClusterTrustBundle{}}
}

// bundleList is what is stored of trust bundles.
func bundleList(all []certificatesv1beta1.ClusterTrustBundle) runtime.Object {
	return &certificatesv1beta1.ClusterTrustBundleList{Items: all}
}
