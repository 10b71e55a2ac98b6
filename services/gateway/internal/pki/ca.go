package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA is the bundle that client certificates are verified with. Safe for
// concurrent use; see LoadClientCA.
type ClientCA struct {
	file string
	log  logr.Logger

	loaded atomic.Pointer[bundle]
	// look is taken by who looks at the file; failed is theirs.
	look   chan struct{}
	failed string
}

// bundle is a file as it was read.
type bundle struct {
	stamp stamp
	pem   []byte
	certs []*x509.Certificate
	pool  *x509.CertPool
}

var _ dynamiccertificates.CAContentProvider = (*ClientCA)(nil)

// LoadClientCA reads a bundle; the file must be there and good.
func LoadClientCA(file string, log logr.Logger) (*ClientCA, error) {
	c := &ClientCA{file: file, log: log, look: make(chan struct{}, 1)}
	if err := c.refresh(); err != nil {
		return nil, fmt.Errorf("%w: correct authentication.x509.clientCAFile, or let the gateway's user read it", err)
	}
	return c, nil
}

// Name names the bundle for messages.
func (c *ClientCA) Name() string { return "client-ca::" + c.file }

// CurrentCABundleContent is the bundle as it is now.
func (c *ClientCA) CurrentCABundleContent() []byte { return c.current().pem }

// VerifyOptions are those for client certificates with the bundle as it is now.
func (c *ClientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: c.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// AddListener does nothing: the bundle is looked at when it is needed.
func (c *ClientCA) AddListener(dynamiccertificates.Listener) {}

// Pool is the bundle as it is now.
func (c *ClientCA) Pool() *x509.CertPool { return c.current().pool }

// current looks at the file, unless somebody does already: a slow disk keeps one
// caller waiting, and the others have what was read before.
func (c *ClientCA) current() *bundle {
	select {
	case c.look <- struct{}{}:
	default:
		return c.loaded.Load()
	}
	defer func() { <-c.look }()
	err := c.refresh()
	if err == nil {
		c.failed = ""
	} else if err.Error() != c.failed {
		c.failed = err.Error()
		c.log.Error(err, "Client CA cannot be loaded; what was loaded before is used", "file", c.file)
	}
	return c.loaded.Load()
}

func (c *ClientCA) refresh() error {
	now, err := stampOf(c.file)
	if err != nil {
		return fmt.Errorf("reading client CA: %w", err)
	}
	before := c.loaded.Load()
	if before != nil && now.same(before.stamp) {
		return nil
	}
	text, err := read("client CA", c.file)
	if err != nil {
		return err
	}
	certs, pool := certificates(text), x509.NewCertPool()
	if len(certs) == 0 {
		return fmt.Errorf("client CA %s holds no PEM certificate", c.file)
	}
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	if before != nil {
		c.log.Info("Client CA was replaced", "file", c.file)
	}
	c.loaded.Store(&bundle{stamp: now, pem: text, certs: certs, pool: pool})
	return nil
}

// certificates are the good ones in a text, as x509.CertPool.AppendCertsFromPEM takes them.
func certificates(text []byte) (list []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, cert)
		}
	}
}
