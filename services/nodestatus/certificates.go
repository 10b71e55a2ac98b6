package nodestatus

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/services/nodestatus/internal/certificate"
	"github.com/polylet/polylet/services/nodestatus/internal/identity"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
)

// part is one that runs as long as the process, with its name.
type part struct {
	name string
	run  func(context.Context) error
}

// clientTTL is the series that alerts on the node's client certificate look at.
func clientTTL(credential *kubeclient.Follower) prometheus.Collector {
	end := func() time.Time {
		if credential == nil {
			return time.Time{}
		}
		_, end := credential.Valid()
		return end
	}
	return clientmetrics.CertificateTTL("kubelet_certificate_manager_client_ttl_seconds",
		"[ALPHA] Seconds until the node's client certificate ends; negative when it has. +Inf when there is none.", end)
}

// certificateMetrics are the series about requests for certificates.
type certificateMetrics struct {
	clientFailures, servingFailures prometheus.Counter
	servingLived                    prometheus.Histogram
}

func newCertificateMetrics(r prometheus.Registerer) (certificateMetrics, error) {
	m := certificateMetrics{
		clientFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_certificate_manager_client_expiration_renew_errors", Help: "[ALPHA] Number of times that a client certificate was asked for in vain.",
		}),
		servingFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_server_expiration_renew_errors", Help: "[ALPHA] Number of times that a serving certificate was asked for in vain.",
		}),
		servingLived: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_certificate_manager_server_rotation_seconds", Help: "[ALPHA] Age in seconds of the serving certificates that were replaced.",
			// A minute, an hour, four hours, a day, a week; one, three, six months, a year, four years.
			Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.clientFailures), r.Register(m.servingFailures), r.Register(m.servingLived))
}

// keepCertificates makes the parts that keep the node's certificates, as far as they are
// the node's to keep, and those that tell of their ends.
func (s *Service) keepCertificates(cfg Config, deps Deps, facts *peer.Store) error {
	metrics, err := newCertificateMetrics(deps.Metrics)
	if err != nil {
		return fmt.Errorf("nodestatus: register metrics: %w", err)
	}
	if deps.Credential == nil {
		return nil
	}
	valid := deps.Credential.Valid
	var ended func()
	if cfg.RotateCertificates || deps.Bootstrap != nil {
		keeper := s.clientKeeper(cfg, deps, metrics)
		s.certificates, ended = append(s.certificates, part{"client CSR", func(ctx context.Context) error { return join(ctx, deps, keeper) }}), keeper.Changed
		valid = noticing(nodecert.NewReader(nodecert.Store{Dir: cfg.CertDir, Prefix: nodecert.Client}), keeper.Changed, valid)
	}
	s.certificates = append(s.certificates, s.tell(deps, identity.Certificate{
		Name: "client certificate", Text: "the client certificate of the kubeconfig", Valid: valid, Ended: ended, Amiss: amiss(cfg, deps.Credential.Credential),
		Refused: "the apiserver refuses it (Unauthorized), and with it all that this node asks for", Renewed: clientRenewal(cfg, deps),
	}))
	if !cfg.ServerTLSBootstrap {
		return nil
	}
	store := nodecert.NewReader(nodecert.Store{Dir: cfg.CertDir, Prefix: nodecert.Serving})
	keeper := s.servingKeeper(cfg, deps, facts, metrics, store)
	s.addresses.Changed = keeper.Changed
	s.certificates = append(s.certificates, part{"serving CSR", keeper.Run}, s.tell(deps, identity.Certificate{
		Name: "serving certificate", Text: "the serving certificate of the node's API", Valid: noticing(store, keeper.Changed, validOf(store)), Ended: keeper.Changed,
		Refused: "kubectl logs, exec and whoever else verifies it is refused", Renewed: "its renewal has failed so far: see the dependency \"serving CSR\" in polylet status",
	}))
	return nil
}

// noticing is valid with a look at the store: what is damaged is mended within seconds,
// before a process that starts anew finds no certificate, and what another puts there is
// known to who mends before that is damaged.
func noticing(store *nodecert.Reader, changed func(), valid func() (begin, end time.Time)) func() (begin, end time.Time) {
	var last *nodecert.Pair
	return func() (begin, end time.Time) {
		pair, err := store.Read()
		switch {
		case err == nil && pair != last:
			last = pair
			changed()
		case errors.Is(err, nodecert.ErrDamaged):
			changed()
		}
		return valid()
	}
}

// amiss says that the client certificate is another node's, where nobody asks for one of
// this node's.
func amiss(cfg Config, credential func() kubeclient.Credential) func() string {
	return func() string {
		c := credential()
		if cfg.RotateCertificates || c.Pair == nil {
			return ""
		}
		other := certificate.OfAnother(c.Pair.Leaf, cfg.NodeName)
		if other == "" {
			return ""
		}
		return fmt.Sprintf("the client certificate %s is another node's: %s: the apiserver lets it change nothing of this node (Forbidden): correct the name, or join the node to the cluster again (kubeadm join)", c.From, other)
	}
}

// clientRenewal says what renews the client certificate.
func clientRenewal(cfg Config, deps Deps) string {
	switch {
	case cfg.RotateCertificates:
		return "its renewal has failed so far: see the dependency \"client CSR\" in polylet status; join the node to the cluster again (kubeadm join) if nothing else helps"
	case deps.Bootstrap != nil:
		return "another is asked for with the bootstrap kubeconfig when it has ended, which has to hold a good token then; set rotateCertificates: true to have it renewed before"
	}
	return "renew the certificate, or join the node to the cluster again; set rotateCertificates: true to have it renewed"
}

func (s *Service) tell(deps Deps, c identity.Certificate) part {
	return part{c.Name, func(ctx context.Context) error { return identity.Watch(ctx, c, deps.Health, s.events.Send) }}
}

func validOf(store *nodecert.Reader) func() (begin, end time.Time) {
	return func() (begin, end time.Time) {
		pair, err := store.Read()
		if err != nil {
			return time.Time{}, time.Time{} // whoever keeps it says what is wrong
		}
		return pair.Leaf.NotBefore, pair.Leaf.NotAfter
	}
}

// join keeps the client's certificate, with each bootstrap kubeconfig that comes. What a
// kubeconfig says of it is written before there is a certificate: it may be gone then.
func join(ctx context.Context, deps Deps, keeper *certificate.Keeper) error {
	deps.Credential.OnBootstrap(func() {
		writeKubeconfig(ctx, deps)
		keeper.Anew()
	})
	writeKubeconfig(ctx, deps)
	return keeper.Run(ctx)
}

func writeKubeconfig(ctx context.Context, deps Deps) {
	if deps.WriteKubeconfig == nil {
		return
	}
	if err := deps.WriteKubeconfig(); err != nil {
		klog.FromContext(ctx).Error(err, "The kubeconfig is not written by this process; polylet run or polylet handout writes it")
	}
}

func (s *Service) clientKeeper(cfg Config, deps Deps, metrics certificateMetrics) *certificate.Keeper {
	want := certificate.ClientRequest(cfg.NodeName)
	var refused func() bool
	if deps.Bootstrap != nil { // whoever is refused cannot ask by himself
		refused = deps.Credential.Refused
	}
	return certificate.New(certificate.ClientConfig(cfg.CertDir, cfg.RotateCertificates), certificate.Deps{
		Want:    func() (*x509.CertificateRequest, string) { return want, "" },
		Current: currentClient(deps.Credential, nodecert.Store{Dir: cfg.CertDir, Prefix: nodecert.Client}),
		Idle:    func() bool { return isIdle(deps.Credential) },
		Refused: refused,
		Clients: func(current *nodecert.Pair) []certificate.Client {
			return clientsFor(current, want, deps.Credential.BootstrapFile(), deps)
		},
		Written: func(ctx context.Context) {
			deps.Credential.Look()
			writeKubeconfig(ctx, deps)
		},
		Send: s.events.Send, Health: deps.Health, Failures: metrics.clientFailures,
	})
}

// isIdle says that the node needs no certificate: it has a token, say.
func isIdle(credential *kubeclient.Follower) bool {
	c := credential.Credential()
	return c.Config != nil && c.Pair == nil && !credential.Rejoins()
}

// currentClient is the client certificate of now. With a kubeconfig that cannot be used the
// apiserver is not asked at all, and the one in the store is as good as any other: each that
// is asked for with the bootstrap kubeconfig would lie there in the same way.
func currentClient(credential *kubeclient.Follower, store nodecert.Store) func() (pair *nodecert.Pair, borrowed bool) {
	return func() (*nodecert.Pair, bool) {
		c := credential.Credential()
		if credential.Rejoins() {
			return nil, false
		}
		if c.Config != nil {
			return c.Pair, c.Borrowed
		}
		if pair, err := store.Read(); err == nil && time.Now().Before(pair.Leaf.NotAfter) {
			return pair, false
		}
		return nil, false
	}
}

// clientsFor are those to ask for a client certificate with: the node's own while it is
// good, else the bootstrap kubeconfig's first. The other is tried, too: the clock or the
// apiserver's authority may have changed. file is that kubeconfig's.
func clientsFor(current *nodecert.Pair, want *x509.CertificateRequest, file string, deps Deps) []certificate.Client {
	var out []certificate.Client
	good := current != nil && time.Now().Before(current.Leaf.NotAfter) && current.Leaf.Subject.CommonName == want.Subject.CommonName
	if current != nil {
		out = append(out, nodeClient(deps.Client))
	}
	if deps.Bootstrap == nil {
		return out
	}
	bootstrap := certificate.Client{
		Name: "the bootstrap kubeconfig " + file, New: deps.Bootstrap,
		Mend:  "its token may have ended: make another on a node of the control plane (kubeadm token create --print-join-command) and put it there (kubeadm join does)",
		Allow: "let it (kubeadm binds group system:bootstrappers:kubeadm:default-node-token to ClusterRole system:node-bootstrapper)",
	}
	if good {
		return append(out, bootstrap)
	}
	return append([]certificate.Client{bootstrap}, out...)
}

func nodeClient(client kubernetes.Interface) certificate.Client {
	return certificate.Client{
		Name: "the node's client certificate", New: func() (kubernetes.Interface, error) { return client, nil },
		Mend:  "it has ended, or the apiserver's authority of clients (--client-ca-file) is another now: join the node to the cluster again (kubeadm join)",
		Allow: "a node may ask for its own only: if it is another node's, correct the name, or join the node to the cluster again (kubeadm join)",
	}
}

// joinsFirst is why no serving certificate is asked for: the cluster that the node has left
// would sign one that nobody in the other trusts, and it would be good for as long.
const joinsFirst = "the node joins a cluster again: a serving certificate is asked for once it has its client certificate, see the dependency \"client CSR\" in polylet status"

// wantServing is what the serving certificate is to be for.
func wantServing(cfg Config, credential *kubeclient.Follower, facts *peer.Store) func() (*x509.CertificateRequest, string) {
	return func() (*x509.CertificateRequest, string) {
		if credential.Rejoins() {
			return nil, joinsFirst
		}
		return certificate.ServingRequest(cfg.NodeName, facts.Get().Addresses, cfg.DNSOnlyCSR)
	}
}

func (s *Service) servingKeeper(cfg Config, deps Deps, facts *peer.Store, metrics certificateMetrics, store *nodecert.Reader) *certificate.Keeper {
	var last *nodecert.Pair // its one goroutine asks
	return certificate.New(certificate.ServingConfig(cfg.CertDir), certificate.Deps{
		Want: wantServing(cfg, deps.Credential, facts),
		Current: func() (*nodecert.Pair, bool) {
			switch pair, err := store.Read(); {
			case err == nil:
				last = pair
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, nodecert.ErrDamaged):
				last = nil // the keeper looks what is wrong
			}
			return last, false // what cannot be read for a moment is what it was
		},
		Clients: func(*nodecert.Pair) []certificate.Client { return []certificate.Client{nodeClient(deps.Client)} },
		Written: func(context.Context) {},
		Send:    s.events.Send, Health: deps.Health, Failures: metrics.servingFailures, Lived: metrics.servingLived,
	})
}
