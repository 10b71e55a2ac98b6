package certificate

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"

	apianswer "github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/services/nodestatus/internal/follow"
)

const (
	// callWithin bounds each call of the apiserver.
	callWithin = 30 * time.Second
	// watchFor is how long the apiserver keeps a watch.
	watchFor = 5 * time.Minute
	// quiet is how long a request may take until it is told of: where somebody
	// approves by himself, none takes as long.
	quiet = 3 * time.Second
	// overdue is between two times that a request that is not answered is counted as
	// one that failed; after the first an event tells of it. The kubelet gives up after
	// 15 minutes, but alerts on its series look at five.
	overdue = 270 * time.Second
)

// Client is one of those with which a certificate can be asked for.
type Client struct {
	// Name says which it is, for messages.
	Name string
	// New makes it anew, with the credential of now. An error that is fs.ErrNotExist says
	// that there is none, which is told only where there is no other.
	New func() (kubernetes.Interface, error)
	// Mend says what to do when the apiserver does not know it, Allow when it may not ask
	// for the certificate.
	Mend, Allow string
}

// problem is why there is no certificate, where somebody can do something about it.
type problem struct {
	error
	// reason is that of the Node's event; empty sends none.
	reason string
	// spent says that the key is of no more use.
	spent bool
	// slow asks again after minutes rather than seconds.
	slow bool
}

func (p *problem) Unwrap() error { return p.error }

// errChanged ends a request for what is no longer wanted.
var errChanged = errors.New("another certificate is wanted meanwhile")

// sent is a request that the apiserver has.
type sent struct {
	client kubernetes.Interface
	// renew makes the client with the credential of now: it may take days until a request
	// is answered, and a bootstrap token ends within one.
	renew func() (kubernetes.Interface, error)
	name  string
	uid   types.UID
}

// ask asks for one certificate and waits until it is issued.
func (k *Keeper) ask(ctx context.Context, want *x509.CertificateRequest, clients []Client) (*nodecert.Pair, error) {
	key, keyPEM, err := k.cfg.Store.PendingKey()
	if err != nil {
		return nil, &problem{error: fmt.Errorf("%w: %s", err, k.unwritable(err)), reason: "CertificateNotWritten"}
	}
	request, err := k.submit(ctx, key, want, clients)
	if err != nil {
		return nil, err
	}
	issued, err := k.await(ctx, request, want)
	if err != nil {
		return nil, err
	}
	pair, why := k.cfg.accept(issued, keyPEM, want)
	if why != "" {
		return nil, &problem{error: fmt.Errorf("the certificate that %s was answered with is not what was asked for: %s: look at what approves and signs requests of signer %s",
			request.name, why, k.cfg.Signer), reason: "CertificateNotUsable", spent: true, slow: true}
	}
	if now, _ := k.deps.Current(); now != nil && now.Leaf.Equal(pair.Leaf) {
		return nil, &problem{error: fmt.Errorf("%s has been answered before", request.name), spent: true}
	}
	return pair, nil
}

// accept reads what a request was answered with, and says why it is not what was asked for.
func (c Config) accept(issued, keyPEM []byte, want *x509.CertificateRequest) (pair *nodecert.Pair, why string) {
	pair, err := nodecert.Parse(issued, keyPEM)
	if err != nil {
		return nil, err.Error()
	}
	return pair, cmp.Or(unreadable(pair.Cert), lacks(pair.Leaf, want), c.unfit(pair.Leaf))
}

// unreadable says which certificate of a chain cannot be read: whoever is shown it refuses
// the connection, so that nobody could be asked for another.
func unreadable(chain []byte) string {
	for n := 1; ; n++ {
		var block *pem.Block
		if block, chain = pem.Decode(chain); block == nil {
			return ""
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Sprintf("number %d of its chain cannot be read: %v", n, err)
		}
	}
}

// submit creates the request, or finds the one that was created before, with the first
// client that the apiserver lets do so.
func (k *Keeper) submit(ctx context.Context, key crypto.Signer, want *x509.CertificateRequest, clients []Client) (*sent, error) {
	text, err := cert.MakeCSRFromTemplate(key, want)
	if err != nil {
		return nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	name, err := requestName(key.Public(), want, k.cfg.Signer)
	if err != nil {
		return nil, err
	}
	var errs, absent []error
	for _, c := range clients {
		client, err := c.New()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, err)
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, callWithin)
		found, uid, err := csr.RequestCertificateWithContext(callCtx, client, text, name, k.cfg.Signer, nil, k.cfg.Usages, key)
		cancel()
		if err == nil {
			return &sent{client: client, renew: c.New, name: found, uid: uid}, nil
		}
		if strings.Contains(err.Error(), "is not compatible") {
			return nil, &problem{error: fmt.Errorf("certificate signing request %s cannot be used any more: %w", name, err), spent: true}
		}
		errs = append(errs, refused(c, err))
	}
	if len(errs) == 0 {
		errs = absent
	}
	if len(errs) == 0 {
		return nil, &problem{error: errors.New("there is nothing to ask for one with: join the node to the cluster (kubeadm join)"), reason: "CertificateNotRequested"}
	}
	return nil, join(errs)
}

// join is one error of several, in a line, with the reason of the first that has one.
func join(errs []error) error {
	out := &problem{error: errs[0]}
	for n, err := range errs {
		if n > 0 {
			out.error = fmt.Errorf("%w; %w", out.error, err)
		}
		var p *problem
		if errors.As(err, &p) && out.reason == "" {
			out.reason = p.reason
		}
	}
	return out
}

// refused says what to do about an apiserver that does not take a request.
func refused(c Client, err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return &problem{error: fmt.Errorf("%s is refused (Unauthorized): %s", c.Name, c.Mend), reason: "CertificateNotRequested"}
	case apierrors.IsForbidden(err):
		return &problem{error: fmt.Errorf("%s may not ask for a certificate: %w: %s", c.Name, err, c.Allow), reason: "CertificateNotRequested"}
	}
	// The library keeps the text of an error only.
	if strings.Contains(err.Error(), x509.UnknownAuthorityError{}.Error()) {
		return &problem{error: fmt.Errorf("%s: %w: correct its certificate-authority-data or its server", c.Name, err), reason: "CertificateNotRequested"}
	}
	if strings.Contains(err.Error(), outOfTime) {
		return &problem{error: fmt.Errorf("%s: by this machine's clock the apiserver's certificate has ended, or has not begun: check the clock; if it is right, renew that certificate (kubeadm certs renew)", c.Name), reason: "CertificateNotRequested"}
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// outOfTime is in the library's error, with the time of now behind it.
var outOfTime = x509.CertificateInvalidError{Reason: x509.Expired}.Error()

// await waits until a request is answered, and tells what it waits for.
func (k *Keeper) await(ctx context.Context, request *sent, want *x509.CertificateRequest) ([]byte, error) {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	tell := time.NewTimer(quiet)
	defer tell.Stop()
	late := time.NewTicker(overdue)
	defer late.Stop()
	answers := make(chan answer, 1)
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() { defer close(done); request.follow(watching, answers) }()
	last, told := answer{since: time.Now()}, false
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case a := <-answers:
			if a.done() {
				return a.issued, a.err
			}
			if a.since.IsZero() {
				a.since = last.since
			}
			last = a
		case <-tell.C:
			told = true
		case <-late.C:
			k.count()
			k.event(ctx, "CertificateRequestPending", "no new "+k.cfg.Name+" certificate yet: the node "+k.waiting(request.name, last))
		case <-again.C:
		case <-k.bell:
		}
		if now, _ := k.deps.Want(); k.anew.Load() || !equal(now, want) || !k.isDue(want) || k.damage() != nil {
			return nil, errChanged
		}
		if told {
			k.say(ctx, k.waiting(request.name, last))
		}
	}
}

func (k *Keeper) waiting(name string, a answer) string {
	return waiting(name, k.cfg.Signer, a) + k.besides()
}

// waiting says what a request waits for, and what to do. How it begins is how liveconf knows
// that nothing but somebody's answer is missing.
func waiting(name, signer string, a answer) string {
	since := a.since.UTC().Format(time.RFC3339)
	switch a.state {
	case approved:
		return fmt.Sprintf("waits for the answer to certificate signing request %s, which is approved, since %s; its signer %s (kube-controller-manager) has to run and to have the authority's key", name, since, signer)
	case "":
	default:
		return fmt.Sprintf("waits for certificate signing request %s, since %s, and cannot look at it: %s", name, since, short(a.state, mostOfError))
	}
	return fmt.Sprintf("waits for the approval of CSR %s, since %s; kubectl certificate approve %s", name, since, name)
}

// approved is the state of a request that waits for its signer only.
const approved = "approved"

// answer is what is known of a request.
type answer struct {
	issued []byte
	err    error
	// state is why not yet: empty, approved, or what went wrong with looking.
	state string
	// since is when the request was made; zero when that is not known.
	since time.Time
}

func (a answer) done() bool { return a.issued != nil || a.err != nil }

// judge says what became of a request.
func judge(r *certificatesv1.CertificateSigningRequest, uid types.UID) answer {
	if r.UID != uid {
		return answer{err: fmt.Errorf("certificate signing request %s was deleted and made anew by somebody", r.Name)}
	}
	out := answer{since: r.CreationTimestamp.Time}
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return answer{err: &problem{
				error:  fmt.Errorf("certificate signing request %s was denied (%s: %s): correct what denies the requests of this node; another is made within minutes, or approve the next by hand", r.Name, short(c.Reason, mostOfReason), short(c.Message, mostOfReason)),
				reason: "CertificateRequestDenied", spent: true, slow: true,
			}}
		case certificatesv1.CertificateFailed:
			return answer{err: &problem{
				error:  fmt.Errorf("certificate signing request %s failed (%s: %s): look at what signs requests of signer %s; another is made within minutes", r.Name, short(c.Reason, mostOfReason), short(c.Message, mostOfReason), r.Spec.SignerName),
				reason: "CertificateRequestFailed", spent: true, slow: true,
			}}
		case certificatesv1.CertificateApproved:
			out.state = approved
		}
	}
	if out.state == approved && len(r.Status.Certificate) > 0 {
		return answer{issued: r.Status.Certificate}
	}
	return out
}

// mostOfReason and mostOfError bound, in bytes, what is told of a reason that somebody has
// given, and of what went wrong, in which an apiserver's words are.
const mostOfReason, mostOfError = 300, 4 << 10

// short bounds what somebody else has written, to a line that a log and an event take.
func short(text string, most int) string {
	if text = strings.Join(strings.Fields(text), " "); len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// follow sends what is known of a request, and ends after the answer.
func (s *sent) follow(ctx context.Context, to chan<- answer) {
	retry := newRetry()
	for ctx.Err() == nil {
		a, opened := s.watch(ctx, to)
		if a.done() {
			send(ctx, to, a)
			return
		}
		if a.state != "" && a.state != approved {
			send(ctx, to, a)
			if fresh, err := s.renew(); err == nil {
				s.client = fresh
			}
		}
		if opened {
			retry.Reset()
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func send(ctx context.Context, to chan<- answer, a answer) {
	select {
	case to <- a:
	case <-ctx.Done():
	}
}

// watch reads a request and watches it, until it is answered or the watch ends, or should
// have.
func (s *sent) watch(ctx context.Context, to chan<- answer) (last answer, opened bool) {
	api := s.client.CertificatesV1().CertificateSigningRequests()
	callCtx, cancel := context.WithTimeout(ctx, callWithin)
	now, err := api.Get(callCtx, s.name, metav1.GetOptions{})
	cancel()
	err = apianswer.Object(now, s.name, err)
	switch {
	case apierrors.IsNotFound(err):
		return answer{err: fmt.Errorf("certificate signing request %s was deleted", s.name)}, false
	case err != nil:
		return answer{state: err.Error()}, false
	}
	a := judge(now, s.uid)
	if a.done() {
		return a, true
	}
	send(ctx, to, a)
	seconds := int64(watchFor.Seconds())
	ctx, cancel = context.WithTimeout(ctx, watchFor+follow.Grace) // it may end nothing by itself
	defer cancel()
	events, err := api.Watch(ctx, metav1.ListOptions{
		// Not from its own version, which an apiserver may have forgotten.
		FieldSelector: follow.Selector(s.name), TimeoutSeconds: &seconds,
	})
	if err != nil {
		return answer{state: err.Error()}, false
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return answer{}, true
		case event, open := <-events.ResultChan():
			r, ours := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !open || !ours || event.Type == "DELETED" || r.Name != s.name {
				return answer{}, true // the next look says why
			}
			a := judge(r, s.uid)
			if a.done() {
				return a, true
			}
			send(ctx, to, a)
		}
	}
}
