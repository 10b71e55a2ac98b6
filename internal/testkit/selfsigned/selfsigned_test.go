package selfsigned

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"
)

func TestACertificateIsAsDescribedAndGoesWithItsKey(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	pair, err := tls.X509KeyPair(PEM(t, &x509.Certificate{Subject: pkix.Name{CommonName: "name"}, NotAfter: end}))
	if err != nil {
		t.Fatal(err)
	}
	if leaf := pair.Leaf; leaf.Subject.CommonName != "name" || !leaf.NotAfter.Equal(end) || leaf.SerialNumber.Int64() != 1 {
		t.Errorf("%v until %s, number %s", leaf.Subject, leaf.NotAfter, leaf.SerialNumber)
	}
}
