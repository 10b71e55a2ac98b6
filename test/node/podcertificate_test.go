package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// signer signs requests for certificates as the cluster's administrator.
type signer struct {
	*house
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func (h *house) signer() *signer {
	h.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	h.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	h.must(err)
	root, err := x509.ParseCertificate(der)
	h.must(err)
	return &signer{h, key, root}
}

// signs signs what is asked for, and ends with ctx.
func (s *signer) signs(ctx context.Context) {
	for ctx.Err() == nil {
		requests := s.cluster.Client.CertificatesV1beta1().PodCertificateRequests(metav1.NamespaceDefault)
		all, err := requests.List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range all.Items {
				if len(all.Items[i].Status.Conditions) == 0 {
					err = s.sign(ctx, &all.Items[i])
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			s.Logf("sign requests for certificates: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *signer) sign(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) error {
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	begin := time.Now().Truncate(time.Second)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: r.Spec.PodName},
		NotBefore: begin, NotAfter: begin.Add(2 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, asked.PublicKey, s.key)
	if err != nil {
		return err
	}
	from, refresh, until := metav1.NewTime(leaf.NotBefore), metav1.NewTime(begin.Add(time.Hour)), metav1.NewTime(leaf.NotAfter)
	r.Status = certificatesv1beta1.PodCertificateRequestStatus{
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        &from, BeginRefreshAt: &refresh, NotAfter: &until,
		Conditions: []metav1.Condition{{
			Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue,
			Reason: "Reason", Message: "signed", LastTransitionTime: metav1.Now(),
		}},
	}
	_, err = s.cluster.Client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// TestAPodGetsACertificateOfItsOwn has it signed by somebody else in the cluster, and
// asks for another after podsync was killed.
func TestAPodGetsACertificateOfItsOwn(t *testing.T) {
	h := build(t, plan{
		gates: []string{"PodCertificateRequest"}, apis: []string{"certificates.k8s.io/v1beta1/podcertificaterequests"},
		overrides: map[string]any{"featureGates": map[string]any{"PodCertificateRequest": true}},
	})
	ctx, stop := context.WithCancel(h.ctx)
	ended := make(chan struct{})
	s := h.signer()
	go func() {
		defer close(ended)
		s.signs(ctx)
	}()
	defer func() { stop(); <-ended }()

	p := shellPod("certified", idle)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: "polylet.test/signer", KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem",
		}}},
	}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: "/own"})
	h.create(p)
	h.waitReady("certified", 2*time.Minute)
	bundle := func() (string, error) {
		out, err := h.kubectl("exec", "certified", "--", "cat", "/own/bundle.pem")
		if err != nil {
			return "", err
		}
		pair, err := tls.X509KeyPair([]byte(out), []byte(out))
		if err != nil {
			return "", fmt.Errorf("the bundle is no key with its certificate: %w", err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			return "", err
		}
		return out, leaf.CheckSignatureFrom(s.root)
	}
	first, err := bundle()
	h.must(err)
	if onKubelet() {
		return
	}
	h.killService("podsync")
	h.eventually(2*time.Minute, "there is another after podsync was killed", func() error {
		now, err := bundle()
		if err != nil {
			return err
		}
		return boolError(now != first, "it is the same")
	})
}
