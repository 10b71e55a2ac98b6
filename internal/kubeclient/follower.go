package kubeclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
)

const (
	// lookAgain is how often the files are looked at, whatever is told.
	lookAgain = 10 * time.Second
	// noCredentialWithin is how long a request waits for a credential that is not there.
	noCredentialWithin = 30 * time.Second
	// nowhere stands for an apiserver that no file names yet.
	nowhere = "https://apiserver.invalid"
)

// ErrNoCredential is what requests end with that waited in vain for a credential.
var ErrNoCredential = errors.New("no credential for the apiserver")

// Follower sends requests to the apiserver with the node's credential as its files
// have it now. They may come, and change, at any time: requests from then on have
// connections of their own, those under way end on theirs, and watches are ended in
// order, to be opened again by whoever watches. Safe for concurrent use; see Follow.
type Follower struct {
	source Source
	log    logr.Logger
	host   string
	bell   wake.Signal
	looks  atomic.Int64

	mu      sync.Mutex
	seen    int64 // the look that current comes from
	current *generation
	problem string
	arrived chan struct{} // closed when current is there
	// bootstrap is what certificates are asked for with.
	bootstrap bootstrap
	// read is what was answered last; left is why Run ends: another cluster has answered.
	read *generation
	left error
}

// generation is one credential with its connections.
type generation struct {
	Credential
	stamp     [sha256.Size]byte
	base      *url.URL
	transport http.RoundTripper
	requests
	// file is the kubeconfig that says where the apiserver is.
	file string
	// refused is since when the apiserver has answered nothing but 401; nil is not.
	refused atomic.Pointer[time.Time]
	// heard says that an apiserver has answered with what was asked for; rejoined that the
	// node has joined again with it, be it the same cluster: its Node may be another.
	heard    atomic.Bool
	rejoined bool
}

// Follow reads the files of a source. What is missing may come later: see Run.
func Follow(source Source, log logr.Logger) *Follower {
	f := &Follower{source: source, log: log, host: nowhere, bell: wake.New(), arrived: make(chan struct{})}
	f.Look()
	r := source.read()
	if server := cmp.Or(r.kubeconfig, r.bootstrap); server != nil {
		if base, _, err := rest.DefaultServerUrlFor(server); err == nil {
			f.host = (&url.URL{Scheme: base.Scheme, Host: base.Host}).String()
		}
	}
	return f
}

// Credential is what the node shows the apiserver now.
func (f *Follower) Credential() Credential {
	g, problem := f.now()
	if g == nil {
		return Credential{Problem: problem}
	}
	c := g.Credential
	c.Problem = problem
	return c
}

// Valid is from when to when the client certificate of now is good; zero when there is
// none.
func (f *Follower) Valid() (begin, end time.Time) {
	if c := f.Credential(); c.Pair != nil {
		return c.Pair.Leaf.NotBefore, c.Pair.Leaf.NotAfter
	}
	return time.Time{}, time.Time{}
}

// refusedFor is how long an apiserver has to refuse a certificate until that is told: one
// that has just been issued it may not know yet.
const refusedFor = time.Minute

// Refused says that the apiserver refuses the certificate of now, and has for a while.
func (f *Follower) Refused() bool {
	g, _ := f.now()
	return g != nil && g.isRefused()
}

// answered notes whether the apiserver knows who asks.
func (g *generation) answered(code int) {
	if code != http.StatusUnauthorized {
		g.refused.Store(nil)
		return
	}
	now := time.Now()
	g.refused.CompareAndSwap(nil, &now)
}

func (g *generation) isRefused() bool {
	since := g.refused.Load()
	return since != nil && time.Since(*since) > refusedFor
}

// refusal says what to do about an apiserver that refuses; empty when it does not.
func (g *generation) refusal() string {
	if g == nil || !g.isRefused() {
		return ""
	}
	if g.Pair == nil {
		return fmt.Sprintf("apiserver %s refuses the credential of kubeconfig %s (Unauthorized): renew it, or join the node to the cluster again (kubeadm join)", g.base.Host, g.From)
	}
	return fmt.Sprintf("apiserver %s refuses the client certificate %s (Unauthorized), which is good until %s: its authority of clients (--client-ca-file) is another now, or its clock differs: "+
		"correct that, or join the node to the cluster again (kubeadm join)", g.base.Host, g.From, g.Pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

func (f *Follower) now() (*generation, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.problem
}

// Run looks at the files when Changed says so and every 10 s, until ctx is done; then
// it returns nil. It tells health what is missing. ErrLeft is its error when the files lead
// to another cluster, which has answered: the process is to end.
func (f *Follower) Run(ctx context.Context, h health.Reporter) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for said := ""; ; {
		f.Look()
		if err := f.leaves(); err != nil {
			return err
		}
		g, problem := f.now()
		if problem = cmp.Or(problem, g.refusal()); problem != said {
			h.Set("credential", problem == "", problem)
			if problem != "" && said != "" { // health logs the first
				f.log.Info("The credential for the apiserver is missing for another reason", "reason", problem)
			}
			said = problem
		}
		select {
		case <-f.bell:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Changed has Run look at the files soon.
func (f *Follower) Changed() {
	f.bell.Set()
}

// Look reads the files and says whether the credential is another one than before.
func (f *Follower) Look() bool {
	look := f.looks.Add(1)
	r := f.source.read()
	chosen := f.choose(r)
	fresh, err := newGeneration(chosen, r)
	if err != nil {
		chosen.Problem = fmt.Sprintf("kubeconfig %s: %v: correct it", f.source.Kubeconfig, err)
	}
	f.mu.Lock()
	if look < f.seen {
		f.mu.Unlock()
		return false // one that began later has been before it
	}
	f.seen = look
	old, rejoined := f.current, f.bootstrap.rejoins
	another, changed := f.bootstrap.take(r, old != nil, fresh != nil), f.bootstrap.changed
	f.problem = chosen.Problem
	if chosen.Config == nil && old != nil {
		f.problem = r.meanwhile(old, chosen.Problem, f.bootstrap.rejoins)
	}
	// Files that are gone take nothing away that still works.
	same := fresh == nil || old != nil && old.stamp == fresh.stamp
	if !same {
		fresh.rejoined = rejoined || old != nil && old.rejoined && !old.heard.Load()
		f.current = fresh
		if old == nil {
			close(f.arrived)
		}
	}
	f.mu.Unlock()
	if another && changed != nil {
		changed()
	}
	if same {
		return false
	}
	f.tell(old, fresh)
	if old != nil {
		old.retire(old.transport)
	}
	return true
}

// choose is choose, but for a kubeconfig that cannot be used: what works goes on, for where
// the bootstrap kubeconfig leads is where the node began.
func (f *Follower) choose(r readings) Credential {
	if old, _ := f.now(); old != nil && r.isBroken() {
		return Credential{}
	}
	return choose(r, time.Now())
}

func (f *Follower) tell(old, fresh *generation) {
	about := []any{"from", fresh.From, "apiserver", fresh.base.Host}
	if fresh.Pair != nil {
		about = append(about, "name", fresh.Pair.Leaf.Subject.CommonName, "notAfter", fresh.Pair.Leaf.NotAfter)
	}
	if old == nil {
		f.log.Info("The apiserver is asked with this credential", about...)
		return
	}
	f.log.Info("The credential for the apiserver was replaced: requests go on connections of their own from now on", about...)
}

// newGeneration makes the connections for a credential; nil for none.
func newGeneration(c Credential, r readings) (*generation, error) {
	if c.Config == nil {
		return nil, nil
	}
	base, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return nil, fmt.Errorf("its server %q: %w", c.Config.Host, err)
	}
	transport, err := rest.TransportFor(c.Config)
	if err != nil {
		return nil, err
	}
	file := r.source.Kubeconfig
	if r.kubeconfig == nil {
		file = r.source.Bootstrap
	}
	return &generation{Credential: c, stamp: c.stamp(r.text), base: base, file: file, transport: transport, requests: newRequests()}, nil
}

// RoundTrip implements http.RoundTripper.
func (f *Follower) RoundTrip(req *http.Request) (*http.Response, error) {
	g, err := f.wait(req.Context())
	if err != nil {
		drop(req)
		return nil, err
	}
	resp, err := f.sendOn(g, req)
	if next, _ := f.now(); err != nil && isWatch(req) && next != g && req.Context().Err() == nil {
		return f.sendOn(next, req) // it was ended before it began
	}
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	// It may have been replaced in the moment before.
	f.Look()
	next, _ := f.now()
	if next == g {
		return resp, nil
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return resp, nil //nolint:nilerr // the answer that is there stands
		}
	}
	_ = resp.Body.Close()
	return f.sendOn(next, again)
}

// wait waits for a credential.
func (f *Follower) wait(ctx context.Context) (*generation, error) {
	g, _ := f.now()
	if g != nil {
		return g, nil
	}
	timeout := time.NewTimer(noCredentialWithin)
	defer timeout.Stop()
	select {
	case <-f.arrived:
		g, _ = f.now()
		return g, nil
	case <-ctx.Done():
	case <-timeout.C:
	}
	_, problem := f.now()
	return nil, fmt.Errorf("%w: %s", ErrNoCredential, problem)
}

// CloseIdleConnections closes the connections that nobody uses.
func (f *Follower) CloseIdleConnections() {
	if g, _ := f.now(); g != nil {
		closeIdle(g.transport)
	}
}

// send sends a request, which names no server that counts, on the generation's
// connections.
func (g *generation) send(req *http.Request) (*http.Response, error) {
	ctx, done := g.begin(req)
	out := req.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host = g.base.Scheme, g.base.Host, ""
	if prefix := strings.TrimSuffix(g.base.Path, "/"); prefix != "" {
		out.URL.Path = prefix + out.URL.Path
		if out.URL.RawPath != "" {
			out.URL.RawPath = prefix + out.URL.RawPath
		}
	}
	resp, err := g.transport.RoundTrip(out)
	if err != nil {
		done(g.transport)
		return nil, g.explain(err)
	}
	resp.Body = &lease{ReadCloser: resp.Body, ended: g.ended, watch: isWatch(req), done: func() { done(g.transport) }}
	return resp, nil
}

// explain says what to do about an apiserver that cannot be trusted.
func (g *generation) explain(err error) error {
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: the kubeconfig's authority has not signed the certificate of apiserver %s: correct certificate-authority-data of the kubeconfig %s, or its server", err, g.base.Host, g.file)
	case errors.As(err, &wrongName):
		return fmt.Errorf("%w: correct the server of the kubeconfig %s", err, g.file)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: check this machine's clock; if it is right, renew the certificate of apiserver %s (kubeadm certs renew)", err, g.base.Host)
	}
	return err
}

func drop(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
