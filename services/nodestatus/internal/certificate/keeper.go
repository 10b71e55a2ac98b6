// Package certificate gets the node's certificates from the apiserver and renews them:
// TLS bootstrap, and rotation of the client's and of the serving certificate.
//
// It owns when a certificate is asked for, with what, and what is told meanwhile. It
// must never write anything but the files of its certificate, and never end the
// process: what uses the certificates goes on with those that are there.
//
// client-go's certificate manager has the same rules and is not used: it keeps the key
// of a request in memory only, so that whoever approves a request of a process that was
// killed approves it in vain; it tells nobody what it waits for; it drops a certificate
// that could not be written; and its timers do not see that the clock was set.
package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

const (
	// lookAgain and lookSeldom are between two looks at a certificate, the more often
	// the sooner it is due: the clock may have been set, and somebody may have put
	// another there.
	lookAgain  = 10 * time.Second
	lookSeldom = 6 * time.Hour
	// lookRefused is the longest where it may be refused at any time.
	lookRefused = time.Minute
	// soonest and slowest are between two requests that could not be made.
	soonest = 2 * time.Second
	slowest = 32 * time.Second
	// slowFirst and slowMax are after one that somebody has refused.
	slowFirst = time.Minute
	slowMax   = 15 * time.Minute
)

// Config says which certificate is kept.
type Config struct {
	// Name is "client" or "serving".
	Name string
	// Store is where it is.
	Store nodecert.Store
	// Signer and Usages are those of the requests.
	Signer string
	Usages []certificatesv1.KeyUsage
	// Rotate has it renewed before it ends; else another is asked for only when
	// there is none that is good.
	Rotate bool
}

// ClientConfig is the configuration for the client's certificate.
func ClientConfig(dir string, rotate bool) Config {
	return Config{
		Name: "client", Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}, Rotate: rotate,
		Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// ServingConfig is the configuration for the serving certificate.
func ServingConfig(dir string) Config {
	return Config{
		Name: "serving", Store: nodecert.Store{Dir: dir, Prefix: nodecert.Serving}, Rotate: true,
		Signer: certificatesv1.KubeletServingSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
}

// Deps is what a Keeper works with.
type Deps struct {
	// Want is what the certificate is to be for; nil, and why, as long as that is not
	// known.
	Want func() (*x509.CertificateRequest, string)
	// Current is the certificate of now, nil when there is none, and whether the
	// kubeconfig came with it rather than a signer answered with it.
	Current func() (pair *nodecert.Pair, borrowed bool)
	// Idle says that no certificate is needed; nil is always one.
	Idle func() bool
	// Refused says that the apiserver refuses the certificate of now, so that another is
	// asked for, once in a while; nil never does.
	Refused func() bool
	// Clients are those to ask with, the best first.
	Clients func(current *nodecert.Pair) []Client
	// Written is called after there is another certificate.
	Written func(ctx context.Context)
	// Send sends an event about the Node.
	Send func(context.Context, node.Event)
	// Health is told what is waited for.
	Health health.Reporter
	// Failures counts what went wrong; Lived takes the age of each certificate that
	// was replaced, in seconds. Either may be nil.
	Failures interface{ Inc() }
	Lived    prometheus.Observer
}

// Keeper keeps one certificate; see New.
type Keeper struct {
	cfg   Config
	deps  Deps
	store *nodecert.Reader
	bell  wake.Signal
	// anew says that another is to be asked for without a pause; see Anew.
	anew atomic.Bool
	// last is the certificate that was last read from the store or written to it.
	last *nodecert.Pair
	// lacks is what the certificate of now does not have that is wanted.
	lacks string
	// said is what is waited for, as health was last told.
	said string
	// replaced is when the last certificate was replaced that was refused.
	replaced time.Time
	// told is the last event's text.
	told string
}

// New returns a Keeper that does nothing yet.
func New(cfg Config, deps Deps) *Keeper {
	return &Keeper{cfg: cfg, deps: deps, store: nodecert.NewReader(cfg.Store), bell: wake.New()}
}

// Changed has the Keeper look at what is wanted soon.
func (k *Keeper) Changed() {
	k.bell.Set()
}

// Anew has the Keeper ask again soon, whatever it waits for: there is something else to ask
// with. A request that is under way is found again where it was made, and made where it
// was not: it may be another apiserver now.
func (k *Keeper) Anew() {
	k.anew.Store(true)
	k.Changed()
}

func newRetry() *backoff.Backoff {
	return backoff.New(backoff.Config{Initial: soonest, Max: slowest, Jitter: 0.1})
}

// Run keeps the certificate until ctx is done; then it returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	retry := newRetry()
	slow := backoff.New(backoff.Config{Initial: slowFirst, Max: slowMax, Jitter: 0.1})
	for ctx.Err() == nil {
		if k.anew.Swap(false) {
			retry.Reset()
			slow.Reset()
			k.replaced = time.Time{}
		}
		wait, err := k.step(ctx)
		var p *problem
		switch {
		case ctx.Err() != nil || errors.Is(err, errChanged):
			continue
		case err == nil:
			retry.Reset()
			slow.Reset()
		default:
			wait = retry.Next()
			if errors.As(err, &p) && p.slow {
				wait = slow.Next()
			}
			k.failed(ctx, err)
		}
		k.pause(ctx, wait, err != nil)
	}
	return nil
}

// pause waits; what has changed meanwhile ends it. After a failure only new damage does, or
// its end, that there is something else to ask with, or nothing to ask for any more.
func (k *Keeper) pause(ctx context.Context, wait time.Duration, afterFailure bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	was := k.damage() != nil
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-k.bell:
		}
		is := k.damage() != nil
		if !afterFailure || is != was || k.anew.Load() || !is && !k.isWanted() {
			return
		}
	}
}

// isWanted says whether there is a certificate to ask for.
func (k *Keeper) isWanted() bool {
	want, _ := k.deps.Want()
	return want != nil && k.isDue(want)
}

// step does what is to be done now, and says when to look again.
func (k *Keeper) step(ctx context.Context) (time.Duration, error) {
	if k.deps.Idle != nil && k.deps.Idle() {
		k.say(ctx, "")
		return lookAgain, nil
	}
	if k.isUnsettled() {
		return settled, nil
	}
	if err := errors.Join(k.mend(ctx), k.unread()); err != nil {
		return 0, err
	}
	want, why := k.deps.Want()
	if want == nil {
		k.say(ctx, why)
		return lookAgain, nil
	}
	current, borrowed := k.deps.Current()
	if borrowed && k.cfg.Rotate {
		k.adopt(ctx, current)
	}
	at, why := due(leafOf(current), want, k.cfg.Rotate, borrowed)
	if k.lacks = ""; current != nil && k.cfg.Rotate {
		k.lacks = lacks(current.Leaf, want)
	}
	if k.isRefused() {
		at, why = time.Time{}, "the apiserver refuses it"
	}
	if left := time.Until(at); left > 0 {
		k.say(ctx, "")
		if err := k.cfg.Store.DropPendingKey(); err != nil {
			klog.FromContext(ctx).V(1).Info("A key that is of no more use stays", "err", err)
		}
		return min(left, k.pauseFor(left)), nil
	}
	klog.FromContext(ctx).V(1).Info("A certificate is asked for", "certificate", k.cfg.Name, "reason", why)
	refused := k.isRefused()
	pair, err := k.ask(ctx, want, k.deps.Clients(current))
	if err != nil {
		return 0, err
	}
	if refused {
		k.replaced = time.Now()
	}
	if err := k.put(ctx, pair, current); err != nil {
		return 0, err
	}
	return pauseAfter(pair.Leaf), nil
}

// pauseAfter is until the next look at a certificate that has just come: one of a short
// life, dated back, is due at once, and so would be all that follow.
func pauseAfter(leaf *x509.Certificate) time.Duration {
	return min(lookAgain, max(soonest, time.Until(leaf.NotAfter)/2))
}

// pauseFor is until the next look at a certificate that is not due yet.
func (k *Keeper) pauseFor(left time.Duration) time.Duration {
	seldom := lookSeldom
	if k.deps.Refused != nil {
		seldom = lookRefused
	}
	return max(lookAgain, min(left/10, seldom))
}

func leafOf(p *nodecert.Pair) *x509.Certificate {
	if p == nil {
		return nil
	}
	return p.Leaf
}

// adopt writes a certificate that the kubeconfig came with: kubeadm init has the
// kubeconfig lead to the store as soon as there is one.
func (k *Keeper) adopt(ctx context.Context, pair *nodecert.Pair) {
	if _, err := k.cfg.Store.Read(); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := k.cfg.Store.Write(pair, time.Now()); err != nil {
		k.failed(ctx, &problem{error: fmt.Errorf("the kubeconfig's certificate cannot be written: %w: %s", err, k.unwritable(err)), reason: "CertificateNotWritten"})
		return
	}
	k.deps.Written(ctx)
}

// isDue says whether there is still something to ask for.
func (k *Keeper) isDue(want *x509.CertificateRequest) bool {
	current, borrowed := k.deps.Current()
	at, _ := due(leafOf(current), want, k.cfg.Rotate, borrowed)
	return !time.Now().Before(at) || k.isRefused()
}

// isRefused says whether the certificate has to be replaced since it is refused. One that
// has just been for that reason is not: the fault is not the certificate's.
func (k *Keeper) isRefused() bool {
	return k.deps.Refused != nil && k.deps.Refused() && time.Since(k.replaced).Abs() > slowMax
}

// put writes a certificate until it is written: another would not be given sooner. With
// something else to ask with it is asked for again, which finds this one where it was made.
func (k *Keeper) put(ctx context.Context, pair, old *nodecert.Pair) error {
	retry := newRetry()
	for {
		if k.anew.Load() {
			return errChanged
		}
		err := k.cfg.Store.Write(pair, time.Now())
		if err == nil {
			break
		}
		k.failed(ctx, &problem{error: fmt.Errorf("a new %s certificate cannot be written: %w: %s; it is kept, and written when that is possible", k.cfg.Name, err, k.unwritable(err)), reason: "CertificateNotWritten"})
		if retry.Wait(ctx) != nil {
			return ctx.Err()
		}
	}
	if err := k.cfg.Store.DropPendingKey(); err != nil {
		klog.FromContext(ctx).V(1).Info("A key that is of no more use stays", "err", err)
	}
	klog.FromContext(ctx).Info("There is a new certificate", "certificate", k.cfg.Name, "file", k.cfg.Store.CurrentPath(), "notAfter", pair.Leaf.NotAfter)
	if old != nil && k.deps.Lived != nil {
		k.deps.Lived.Observe(time.Since(old.Leaf.NotBefore).Seconds())
	}
	k.last, k.told = pair, ""
	k.say(ctx, "")
	k.deps.Written(ctx)
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return &problem{error: fmt.Errorf("the %s certificate that was issued just now ended at %s, and this machine's clock says %s: set this machine's clock",
			k.cfg.Name, pair.Leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), reason: "CertificateNotUsable", slow: true}
	}
	return nil
}

// unwritable says what to do about a directory that cannot be written to.
func (k *Keeper) unwritable(err error) string {
	dir := k.cfg.Store.Dir
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space on the file system of " + dir
	case errors.Is(err, fs.ErrNotExist):
		return "make --cert-dir " + dir + " (polylet run and polylet handout do), and under systemd restart the service, which goes on with the one that was removed"
	case errors.Is(err, syscall.EROFS):
		return "make --cert-dir " + dir + " writable to nodestatus: under systemd its unit needs ReadWritePaths=, and the directory has to be there when it starts (systemctl restart polylet-nodestatus)"
	case errors.Is(err, fs.ErrPermission):
		return "give --cert-dir " + dir + " to the user of nodestatus (polylet run and polylet handout do, or log why not; under systemd its unit needs ReadWritePaths=)"
	}
	return "look at --cert-dir " + dir
}

func (k *Keeper) count() {
	if k.deps.Failures != nil {
		k.deps.Failures.Inc()
	}
}

// failed tells and counts a failure.
func (k *Keeper) failed(ctx context.Context, err error) {
	k.count()
	text := fmt.Sprintf("no new %s certificate: %s%s", k.cfg.Name, short(err.Error(), mostOfError), k.besides())
	k.say(ctx, text)
	var p *problem
	if !errors.As(err, &p) {
		return
	}
	if p.spent {
		if err := k.cfg.Store.DropPendingKey(); err != nil {
			klog.FromContext(ctx).Error(err, "The key of a request that is of no more use stays, and is used again", "file", k.cfg.Store.Dir)
		}
	}
	if p.reason != "" {
		k.event(ctx, p.reason, text)
	}
}

// event sends an event, once for each thing that happens.
func (k *Keeper) event(ctx context.Context, reason, text string) {
	if k.told != text {
		k.told = text
		k.deps.Send(ctx, node.Event{Type: "Warning", Reason: reason, Message: text})
	}
}

// besides is what the certificate of now lacks, for the end of a sentence about one that
// is waited for.
func (k *Keeper) besides() string {
	if k.lacks == "" {
		return ""
	}
	return "; the certificate of now is not the right one: " + k.lacks
}

// say tells health what is waited for; empty is nothing. Health logs that there is
// something, and this what becomes of it.
func (k *Keeper) say(ctx context.Context, text string) {
	if text == k.said {
		return
	}
	k.deps.Health.Set(k.cfg.Name+" CSR", text == "", text)
	if text != "" && k.said != "" {
		klog.FromContext(ctx).Info("A certificate is waited for", "certificate", k.cfg.Name, "reason", text)
	}
	k.said = text
}
