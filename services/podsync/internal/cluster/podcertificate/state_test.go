package podcertificate

import (
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestASignerThatWantsRenewalAtOnceIsNotAskedWithoutEnd(t *testing.T) {
	pcr := &certificatesv1beta1.PodCertificateRequest{}
	pcr.Status.Conditions = []metav1.Condition{{Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued}}
	pcr.Status.CertificateChain = chain
	for range 1000 {
		begin := metav1.NewTime(time.Now().Add(-maxJitter / 2))
		pcr.Status.BeginRefreshAt = &begin
		s := &state{pending: "req"}
		if New(Deps{}).take(request(), s, pcr); time.Until(s.refreshAt) < retryAfter-time.Second {
			t.Fatalf("it is renewed after %v", time.Until(s.refreshAt))
		}
	}
}
