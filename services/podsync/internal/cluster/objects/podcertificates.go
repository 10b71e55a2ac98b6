package objects

import (
	"context"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/internal/answer"
)

// PodCertificateRequests are all requests for certificates of pods of this node; see
// TrustBundles.
func (s *Store) PodCertificateRequests(ctx context.Context) ([]certificatesv1beta1.PodCertificateRequest, error) {
	list, err := read[*certificatesv1beta1.PodCertificateRequestList](ctx, s, Key{Kind: PodCertificateRequest})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// certificateRequests is how they are listed and watched: a node may read its own only.
func (s *Store) certificateRequests() calls {
	c := s.client.CertificatesV1beta1().PodCertificateRequests(metav1.NamespaceAll)
	own := fields.OneTermEqualSelector("spec.nodeName", s.cfg.NodeName).String()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.FieldSelector = own
		l, err := c.List(ctx, o)
		return l, s.unserved(ctx, "podcertificaterequests", "PodCertificateRequest", answer.List(l, err))
	}
	follow := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = own
		w, err := c.Watch(ctx, o)
		return w, s.unserved(ctx, "podcertificaterequests", "PodCertificateRequest", err)
	}
	return calls{list, follow, &certificatesv1beta1.PodCertificateRequest{}}
}

// requestList is what is stored of requests.
func requestList(all []certificatesv1beta1.PodCertificateRequest) runtime.Object {
	return &certificatesv1beta1.PodCertificateRequestList{Items: all}
}
