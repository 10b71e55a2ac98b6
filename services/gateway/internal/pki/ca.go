package pki

import (
	"crypto/x509"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA is the bundle that client certificates are verified with. Safe for
// concurrent use; see LoadClientCA.
type ClientCA struct {
	file string
	log  logr.Logger

	mu     sync.Mutex
	stamp  stamp
	bundle []byte
	pool   *x509.CertPool
	failed string
}

var _ dynamiccertificates.CAContentProvider = (*ClientCA)(nil)

// LoadClientCA reads a bundle; the file must be there and good.
func LoadClientCA(file string, log logr.Logger) (*ClientCA, error) {
	c := &ClientCA{file: file, log: log}
	if err := c.refresh(); err != nil {
		return nil, fmt.Errorf("%w: correct authentication.x509.clientCAFile, or let the gateway's user read it", err)
	}
	return c, nil
}

// Name names the bundle for messages.
func (c *ClientCA) Name() string { return "client-ca::" + c.file }

// CurrentCABundleContent is the bundle as it is now.
func (c *ClientCA) CurrentCABundleContent() []byte {
	c.current()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bundle
}

// VerifyOptions are those for client certificates with the bundle as it is now.
func (c *ClientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	pool := c.current()
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, pool != nil
}

// AddListener does nothing: the bundle is looked at when it is needed.
func (c *ClientCA) AddListener(dynamiccertificates.Listener) {}

// Pool is the bundle as it is now.
func (c *ClientCA) Pool() *x509.CertPool { return c.current() }

func (c *ClientCA) current() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.refresh()
	if err == nil {
		c.failed = ""
	} else if err.Error() != c.failed {
		c.failed = err.Error()
		c.log.Error(err, "Client CA cannot be loaded; what was loaded before is used", "file", c.file)
	}
	return c.pool
}

func (c *ClientCA) refresh() error {
	now, err := stampOf(c.file)
	if err != nil {
		return fmt.Errorf("reading client CA: %w", err)
	}
	if now.same(c.stamp) {
		return nil
	}
	bundle, err := read("client CA", c.file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("client CA %s holds no PEM certificate", c.file)
	}
	if c.pool != nil {
		c.log.Info("Client CA was replaced", "file", c.file)
	}
	c.bundle, c.pool, c.stamp = bundle, pool, now
	return nil
}
