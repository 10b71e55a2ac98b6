package kubeclient

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/internal/nodecert"
)

// Source is where the node's credential for the apiserver comes from.
type Source struct {
	// Kubeconfig is --kubeconfig. It may come later.
	Kubeconfig string
	// Bootstrap is --bootstrap-kubeconfig; empty when there is none. Until there is a
	// kubeconfig it says where the apiserver is; what it holds of a credential is used
	// to ask for a certificate only.
	Bootstrap string
	// Store has the client certificate that nodestatus asks for; without a directory
	// nobody asks for one.
	Store nodecert.Store
}

// Credential is what the node shows the apiserver now, and to which one.
type Credential struct {
	// Config reaches the apiserver; nil when nothing is there to do so with.
	Config *rest.Config
	// Pair is the client certificate; nil when Config has another kind of credential.
	Pair *nodecert.Pair
	// From is the file that the credential comes from.
	From string
	// Borrowed says that the kubeconfig has the certificate in it: kubeadm init makes
	// such a one, to be replaced by one that the node asks for itself.
	Borrowed bool
	// Problem says what is missing and what to do; empty when nothing is.
	Problem string
}

// readings is what the files say.
type readings struct {
	source                      Source
	kubeconfig, bootstrap       *rest.Config
	kubeconfigErr, bootstrapErr error
	// own is the certificate that the kubeconfig has or names; ownFrom is where.
	own, stored       *nodecert.Pair
	ownErr, storedErr error
	ownFrom           string
	// text is the kubeconfig as it stands there, bootstrapText the bootstrap kubeconfig.
	text, bootstrapText []byte
}

// read reads all files anew.
func (s Source) read() readings {
	r := readings{source: s}
	r.kubeconfig, r.kubeconfigErr = load(s.Kubeconfig)
	if s.Bootstrap != "" {
		r.bootstrap, r.bootstrapErr = load(s.Bootstrap)
		r.bootstrapText, _ = os.ReadFile(s.Bootstrap) // as below
	}
	r.text, _ = os.ReadFile(s.Kubeconfig) // load has said what is wrong
	r.readPairs()
	return r
}

// stamp differs when requests with the credential have to go another way.
func (c Credential) stamp(text []byte) (out [sha256.Size]byte) {
	sum := sha256.New()
	parts := [][]byte{[]byte(c.Config.Host), []byte(c.Config.APIPath), []byte(c.Config.ServerName), fmt.Append(nil, c.Config.Insecure), c.Config.CAData}
	if c.Pair != nil {
		parts = append(parts, c.Pair.PEM(), proxyOf(c.Config))
	} else {
		parts = append(parts, text)
	}
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	sum.Sum(out[:0])
	return out
}

// proxyOf is the proxy that a configuration names; what the environment says does not
// change.
func proxyOf(cfg *rest.Config) []byte {
	if cfg.Proxy == nil {
		return nil
	}
	proxy, err := cfg.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "apiserver"}})
	if err != nil || proxy == nil {
		return nil
	}
	return []byte(proxy.String())
}

func (r *readings) readPairs() {
	if r.source.Store.Dir != "" {
		r.stored, r.storedErr = r.source.Store.Read()
	}
	if cfg := r.kubeconfig; cfg != nil && hasCertificate(cfg) {
		r.ownFrom = r.source.Kubeconfig
		cert, key := cfg.CertData, cfg.KeyData
		if len(cert) == 0 {
			r.ownFrom = cfg.CertFile
			cert, r.ownErr = nodecert.ReadFile(cfg.CertFile)
		}
		if len(key) == 0 && r.ownErr == nil {
			key, r.ownErr = nodecert.ReadFile(cfg.KeyFile)
		}
		if r.ownErr == nil {
			r.own, r.ownErr = nodecert.Parse(cert, key)
		}
	}
}

func hasCertificate(cfg *rest.Config) bool { return len(cfg.CertData) > 0 || cfg.CertFile != "" }

// load reads a kubeconfig, with the authority's certificates in it. The files of a client
// certificate need not be there.
func load(path string) (*rest.Config, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err // clientcmd would say that it is empty
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	text, err := rules.Load()
	if err != nil {
		return nil, err
	}
	var cert, key string
	if chosen := text.Contexts[text.CurrentContext]; chosen != nil {
		if user := text.AuthInfos[chosen.AuthInfo]; user != nil {
			cert, key = user.ClientCertificate, user.ClientKey
			user.ClientCertificate, user.ClientKey = "", ""
		}
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*text, text.CurrentContext, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.CertFile, cfg.KeyFile = cert, key
	if len(cfg.CAData) == 0 && cfg.CAFile != "" {
		if cfg.CAData, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("the authority's certificates that it names: %w", err)
		}
	}
	cfg.CAFile = ""
	return cfg, nil
}

// choose says what the node shows the apiserver: the certificate that nodestatus got,
// as with the kubelet, where it is good; else the kubeconfig's own; else the one that
// ended last. Whether it is good the apiserver decides by its own clock, so one that
// has ended is shown where there is no other.
func choose(r readings, now time.Time) Credential {
	server := r.kubeconfig
	if server == nil && r.bootstrap != nil {
		server = r.bootstrap
	}
	if server == nil {
		return Credential{Problem: noServer(r)}
	}
	if r.kubeconfig != nil && !hasCertificate(r.kubeconfig) {
		return Credential{Config: r.kubeconfig, From: r.source.Kubeconfig}
	}
	pair, from := best(r, now)
	if pair == nil {
		return Credential{Problem: noCertificate(r)}
	}
	cfg := rest.AnonymousClientConfig(server)
	cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = pair.Cert, pair.Key, "", ""
	borrowed := r.own != nil && r.ownFrom == r.source.Kubeconfig && pair.Leaf.Equal(r.own.Leaf)
	out := Credential{Config: cfg, Pair: pair, From: from, Borrowed: borrowed}
	if r.kubeconfig == nil {
		out.Problem = unwritten(r)
	}
	return out
}

// unwritten says what it is to have a certificate and no kubeconfig: kubeadm join waits for
// that, and takes away the other, and a process that starts then knows no apiserver.
func unwritten(r readings) string {
	return fmt.Sprintf("%s, though the node has its client certificate %s: root's polylet run or polylet handout writes it, or logs why it cannot (a full disk, say): see there; "+
		"until then where the apiserver is stands in bootstrap kubeconfig %s only", unusable("kubeconfig", r.source.Kubeconfig, r.kubeconfigErr), r.source.Store.CurrentPath(), r.source.Bootstrap)
}

// best is the better of two certificates and where it comes from.
func best(r readings, now time.Time) (pair *nodecert.Pair, from string) {
	stored, storedFrom := r.stored, r.source.Store.CurrentPath()
	switch {
	case r.own == nil:
		return stored, storedFrom
	case stored == nil:
		return r.own, r.ownFrom
	case now.Before(stored.Leaf.NotAfter):
		return stored, storedFrom
	case now.Before(r.own.Leaf.NotAfter) || r.own.Leaf.NotAfter.After(stored.Leaf.NotAfter):
		return r.own, r.ownFrom
	}
	return stored, storedFrom
}

// noServer says why it is not known where the apiserver is.
func noServer(r readings) string {
	text := unusable("kubeconfig", r.source.Kubeconfig, r.kubeconfigErr)
	switch {
	case r.source.Bootstrap == "":
		return text + ": kubeadm join writes it; else write it, or correct --kubeconfig"
	case isAbsent(r.source.Kubeconfig, r.kubeconfigErr) && isAbsent(r.source.Bootstrap, r.bootstrapErr):
		return text + ", and no bootstrap kubeconfig " + r.source.Bootstrap + " to get a certificate with either: kubeadm join writes both"
	}
	return text + ", and " + unusable("bootstrap kubeconfig", r.source.Bootstrap, r.bootstrapErr) + ": correct it (kubeadm join writes it anew)"
}

// noCertificate says why there is none to show.
func noCertificate(r readings) string {
	what := r.withoutCertificate("the node has no client certificate yet")
	switch {
	case r.bootstrap != nil:
		return what + ": " + r.asks()
	case r.source.Bootstrap != "":
		return what + ", and " + unusable("bootstrap kubeconfig", r.source.Bootstrap, r.bootstrapErr) + ": put the files back, or join the node to the cluster again (kubeadm join)"
	}
	return what + ": put it back, or join the node to the cluster again (kubeadm join)"
}

// withoutCertificate says what is the matter with the certificate; absent where there is
// just none.
func (r *readings) withoutCertificate(absent string) string {
	switch {
	case r.bootstrap != nil && isAbsent(absolute(r.source.Store.CurrentPath()), r.ownErr):
		// The kubeconfig is written before the certificate is there.
	case r.ownErr != nil && r.ownFrom == r.source.Kubeconfig:
		return fmt.Sprintf("the client certificate in kubeconfig %s: %v", r.source.Kubeconfig, r.ownErr)
	case r.ownErr != nil:
		return fmt.Sprintf("kubeconfig %s names a client certificate that cannot be read: %v", r.source.Kubeconfig, r.ownErr)
	case r.storedErr != nil && !errors.Is(r.storedErr, fs.ErrNotExist):
		return r.storedErr.Error()
	}
	return absent
}

func (r *readings) asks() string {
	return "nodestatus asks for one with bootstrap kubeconfig " + r.source.Bootstrap + " (polylet status says how far that is)"
}

// meanwhile says what becomes of a node that has read a credential before its files went.
func (r *readings) meanwhile(old *generation, problem string, rejoins bool) string {
	asked := fmt.Sprintf("apiserver %s is asked with what was read before", old.base.Host)
	switch {
	case rejoins:
		return fmt.Sprintf("the files of the node's client certificate were removed, and a bootstrap kubeconfig has come: %s; until it is there %s", r.asks(), asked)
	case r.isBroken():
		return fmt.Sprintf("%s: correct it; until then %s", unusable("kubeconfig", r.source.Kubeconfig, r.kubeconfigErr), asked)
	case r.bootstrap != nil && old.Pair != nil: // it was there before, and nobody is asked with it
		return fmt.Sprintf("%s: %s, which is good until %s; a nodestatus that is restarted asks with bootstrap kubeconfig %s, whose token may have ended: put the files back, or join the node to the cluster again (kubeadm join)",
			r.withoutCertificate("there is no client certificate any more"), asked, old.Pair.Leaf.NotAfter.UTC().Format(time.RFC3339), r.source.Bootstrap)
	}
	return problem
}

// isBroken says that there is a kubeconfig that cannot be used: somebody may be writing it.
func (r *readings) isBroken() bool {
	return r.kubeconfigErr != nil && !isAbsent(r.source.Kubeconfig, r.kubeconfigErr)
}

func unusable(what, path string, err error) string {
	if path == "" {
		return "no " + what + " is named"
	}
	if isAbsent(path, err) {
		return fmt.Sprintf("there is no %s %s", what, path)
	}
	return fmt.Sprintf("%s %s cannot be used: %v", what, path, err)
}

// isAbsent says whether an error is that there is no such file, and not that there is none
// of those which it names.
func isAbsent(path string, err error) bool {
	var missing *fs.PathError
	return errors.Is(err, fs.ErrNotExist) && errors.As(err, &missing) && missing.Path == path
}
