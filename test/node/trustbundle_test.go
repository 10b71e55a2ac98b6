package node_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// root is a certificate that signs itself, as PEM.
func (h *house) root(name string) string {
	h.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	h.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	h.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestATrustBundleReachesAPodAndFollowsTheCluster is the projection of
// ClusterTrustBundles on an apiserver that serves them.
func TestATrustBundleReachesAPodAndFollowsTheCluster(t *testing.T) {
	h := build(t, plan{
		gates: []string{"ClusterTrustBundle", "ClusterTrustBundleProjection"}, apis: []string{"certificates.k8s.io/v1beta1/clustertrustbundles"},
		overrides: map[string]any{"featureGates": map[string]any{"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true}},
	})
	bundles := h.cluster.Client.CertificatesV1beta1().ClusterTrustBundles()
	first, second := h.root("first"), h.root("second")

	p := shellPod("trusting", idle)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "trust", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr("roots"), Path: "roots.pem"}},
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr("absent"), Path: "absent.pem", Optional: ptr(true)}},
		},
	}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "trust", MountPath: "/trust"})
	h.create(p)
	h.eventSays("trusting", `clustertrustbundle.certificates.k8s.io "roots" not found`)
	bundle, err := bundles.Create(h.ctx, &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "roots"},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: "the first\n" + first},
	}, metav1.CreateOptions{})
	h.must(err)
	h.waitReady("trusting", time.Minute)
	h.prints(first, "exec", "trusting", "--", "cat", "/trust/roots.pem")
	h.prints("", "exec", "trusting", "--", "cat", "/trust/absent.pem")

	bundle.Spec.TrustBundle = second
	_, err = bundles.Update(h.ctx, bundle, metav1.UpdateOptions{})
	h.must(err)
	h.eventually(30*time.Second, "the pod sees the second", func() error {
		out, err := h.kubectl("exec", "trusting", "--", "cat", "/trust/roots.pem")
		if err != nil {
			return err
		}
		return boolError(out == second, "it sees %q", out)
	})
	h.delete("trusting")
	h.waitGone("trusting", time.Minute)
}
