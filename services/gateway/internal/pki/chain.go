package pki

import (
	"bytes"
	"crypto/x509"
	"slices"
)

// Chain returns of the certificates that a client shows its own, and of the others those
// that the bundle as it is now vouches for: each is signed by one of the bundle, or by
// another that is. Only such can be in the chain of a good certificate, while whoever
// verifies one tries all that there is, up to a hundred signatures each time, and a client
// without any credential says how long each takes. How many may be shown is the port's to
// say: each is one signature here.
func (c *ClientCA) Chain(shown []*x509.Certificate) []*x509.Certificate {
	if len(shown) < 2 {
		return shown
	}
	out, rest := shown[:1:1], shown[1:]
	for signers := c.current().certs; len(signers) > 0 && len(rest) > 0; {
		var good, others []*x509.Certificate
		for _, cert := range rest {
			if signed(cert, signers) {
				good = append(good, cert)
			} else {
				others = append(others, cert)
			}
		}
		out = append(out, good...)
		signers, rest = good, others
	}
	return out
}

// signed says whether one of signers has signed a certificate.
func signed(cert *x509.Certificate, signers []*x509.Certificate) bool {
	return slices.ContainsFunc(signers, func(by *x509.Certificate) bool {
		return bytes.Equal(cert.RawIssuer, by.RawSubject) && cert.CheckSignatureFrom(by) == nil
	})
}
