package access

import (
	"crypto/x509"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// CA is whose certificates are good.
type CA interface {
	dynamiccertificates.CAContentProvider
	// Chain returns of what a client shows what may lead to it, the client's own first.
	Chain(shown []*x509.Certificate) []*x509.Certificate
}

// byCertificate authenticates by client certificates. What a client shows beside its own is
// looked at only as far as it leads to the CA.
func byCertificate(ca CA) authenticator.Request {
	verified := requestx509.NewDynamic(ca.VerifyOptions, requestx509.CommonNameUserConversion)
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 1 {
			state := *r.TLS
			state.PeerCertificates = ca.Chain(state.PeerCertificates)
			r = r.WithContext(r.Context())
			r.TLS = &state
		}
		return verified.AuthenticateRequest(r)
	})
}
