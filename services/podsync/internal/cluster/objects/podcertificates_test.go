package objects

import (
	"strings"
	"testing"
	"testing/synctest"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestRequestsForCertificatesOfThisNodeAreFollowed(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		create := func(namespace, name, node string) {
			_, err := b.admin.CertificatesV1beta1().PodCertificateRequests(namespace).Create(t.Context(), &certificatesv1beta1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1beta1.PodCertificateRequestSpec{NodeName: types.NodeName(node)},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		create("a", "r", "n")
		pod := trusting("p")
		pod.Spec.Volumes[0].Projected.Sources = []v1.VolumeProjection{{PodCertificate: &v1.PodCertificateProjection{}}}
		b.store.Hold(pod)
		synctest.Wait()
		b.changes()
		create("b", "r", "n")
		if seen := strings.Join(b.changes(), ","); seen != " for p" {
			t.Errorf("told were %q", seen)
		}
		create("b", "other", "elsewhere")
		if seen := b.changes(); len(seen) != 0 {
			t.Errorf("of another node's %v were told", seen)
		}
		all, err := b.store.PodCertificateRequests(t.Context())
		if err != nil || len(all) != 2 || all[0].Namespace != "a" || all[1].Namespace != "b" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}
