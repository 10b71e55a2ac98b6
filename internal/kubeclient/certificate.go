package kubeclient

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// CertificateTimes are from when to when the client certificate of a configuration
// is valid, as it stands in its file now; zero when there is none, or it cannot be
// read.
func CertificateTimes(cfg *rest.Config) (begin, end time.Time) {
	data := cfg.CertData
	if cfg.CertFile != "" {
		read, err := os.ReadFile(cfg.CertFile)
		if err != nil {
			return time.Time{}, time.Time{} // requests that need it say so
		}
		data = read
	}
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return time.Time{}, time.Time{}
		}
		if block.Type == "CERTIFICATE" {
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return time.Time{}, time.Time{}
			}
			return leaf.NotBefore, leaf.NotAfter
		}
		data = rest
	}
}
