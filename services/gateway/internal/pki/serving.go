package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// Serving is the pair that the secure port shows. Safe for concurrent use; see
// NewServing.
type Serving struct {
	certFile, keyFile string
	log               logr.Logger

	loaded atomic.Pointer[served]
	// look is taken by who looks at the files; failed is theirs.
	look   chan struct{}
	failed string
	// meanwhile is shown until there is a pair; nil shows none. It is set before others
	// have the Serving.
	meanwhile *tls.Certificate
}

// served is a pair as it was read.
type served struct {
	cert, key stamp
	pair      *tls.Certificate
}

// NewServing returns the pair in two files, which may be one and the same. It
// reads nothing yet.
func NewServing(certFile, keyFile string, log logr.Logger) *Serving {
	return &Serving{certFile: certFile, keyFile: keyFile, log: log, look: make(chan struct{}, 1)}
}

// Fixed returns a pair that does not change.
func Fixed(pair *tls.Certificate) *Serving {
	s := &Serving{}
	s.loaded.Store(&served{pair: pair})
	return s
}

// GetCertificate is for tls.Config. A pair that cannot be read is logged once,
// and the one before goes on being shown.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := s.current()
	if pair == nil {
		return nil, fmt.Errorf("no serving certificate available for the node agent: %w", err)
	}
	return pair, nil
}

// NotAfter is when the pair ends; zero when there is none.
func (s *Serving) NotAfter() time.Time {
	pair, _ := s.current()
	if pair == nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// current looks at the files, unless somebody does already: a slow disk keeps one
// handshake waiting, and the others show what was read before.
func (s *Serving) current() (*tls.Certificate, error) {
	if s.certFile == "" {
		return s.loaded.Load().pair, nil
	}
	select {
	case s.look <- struct{}{}:
	default:
		if now := s.loaded.Load(); now != nil {
			return now.pair, nil
		}
		if s.meanwhile != nil {
			return s.meanwhile, nil
		}
		s.look <- struct{}{} // there is nothing to show until somebody has looked
	}
	defer func() { <-s.look }()
	err := s.refresh()
	if err == nil {
		s.failed = ""
	} else if err.Error() != s.failed {
		s.failed = err.Error()
		s.log.Error(err, "Serving certificate cannot be loaded; what was loaded before is used", "cert", s.certFile, "key", s.keyFile)
	}
	if now := s.loaded.Load(); now != nil {
		return now.pair, err
	}
	return s.meanwhile, err
}

func (s *Serving) refresh() error {
	cert, err := stampOf(s.certFile)
	if err != nil {
		return err
	}
	key, err := stampOf(s.keyFile)
	if err != nil {
		return err
	}
	before := s.loaded.Load()
	if before != nil && cert.same(before.cert) && key.same(before.key) {
		return nil
	}
	pair, err := loadPair(s.certFile, s.keyFile)
	if err != nil {
		return err
	}
	if before != nil {
		s.log.Info("Serving certificate was replaced", "cert", s.certFile, "notAfter", pair.Leaf.NotAfter)
	}
	s.loaded.Store(&served{cert: cert, key: key, pair: pair})
	return nil
}

func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := read("serving certificate", certFile)
	if err != nil {
		return nil, err
	}
	key, err := read("serving key", keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate %s with key %s: %w", certFile, keyFile, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("serving certificate %s: %w", certFile, err)
		}
	}
	return &pair, nil
}

// Config says where the serving pair comes from.
type Config struct {
	// CertFile and KeyFile are what the operator gave; both or none.
	CertFile, KeyFile string
	// Wait is true when somebody else will write the files: until they are
	// there a self-signed pair is shown, so that the port works.
	Wait bool
	// FallbackCertFile and FallbackKeyFile are used when nothing was given;
	// made there, self-signed, when that is possible, else kept in memory.
	FallbackCertFile, FallbackKeyFile string
	// Names and addresses of a self-signed certificate.
	Hosts []string
}

// Load returns the serving pair as Config says.
func Load(cfg Config, log logr.Logger) (*Serving, error) {
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, fmt.Errorf("tlsCertFile is %q and tlsPrivateKeyFile is %q: give both or none", cfg.CertFile, cfg.KeyFile)
	}
	if cfg.CertFile != "" {
		return loadGiven(cfg, log)
	}
	if cfg.FallbackCertFile != "" {
		s := NewServing(cfg.FallbackCertFile, cfg.FallbackKeyFile, log)
		err := s.refresh()
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			log.Info("Serving certificate cannot be used, another is made", "cert", cfg.FallbackCertFile, "err", err)
		}
	}
	return makeOne(cfg, log)
}

func loadGiven(cfg Config, log logr.Logger) (*Serving, error) {
	s := NewServing(cfg.CertFile, cfg.KeyFile, log)
	_, err := s.current()
	switch {
	case err == nil:
		return s, nil
	case !cfg.Wait:
		return nil, fmt.Errorf("%w: the gateway's user must be able to read tlsCertFile and tlsPrivateKeyFile", err)
	}
	made, err := selfSigned(cfg.Hosts, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making a self-signed serving certificate: %w", err)
	}
	s.meanwhile = made.pair
	log.Info("Serving with a self-signed certificate until the apiserver's signer has given one", "cert", cfg.CertFile)
	return s, nil
}

func makeOne(cfg Config, log logr.Logger) (*Serving, error) {
	made, err := selfSigned(cfg.Hosts, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making a self-signed serving certificate: %w", err)
	}
	if cfg.FallbackCertFile != "" {
		err := made.write(cfg.FallbackCertFile, cfg.FallbackKeyFile)
		if err == nil {
			log.Info("Made a self-signed serving certificate", "cert", cfg.FallbackCertFile)
			return NewServing(cfg.FallbackCertFile, cfg.FallbackKeyFile, log), nil
		}
		log.V(1).Info("The self-signed serving certificate is not written", "err", err)
	}
	log.Info("Serving with a self-signed certificate that lives until the process ends; " +
		"set tlsCertFile and tlsPrivateKeyFile, or serverTLSBootstrap, for one that clients can verify")
	return Fixed(made.pair), nil
}
