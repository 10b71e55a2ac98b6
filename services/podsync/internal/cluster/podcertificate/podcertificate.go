// Package podcertificate keeps certificates for pods: it makes a key, asks the apiserver
// for a certificate by a PodCertificateRequest, and again before it is due.
//
// It owns the keys in memory, each until its certificate is replaced or its pod is gone,
// and must never write one to disk or to a log. After a restart there are none, and new
// ones are asked for.
// Source: KEP-4317, with the kubelet's words in errors and events.
package podcertificate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
)

const (
	defaultTimeout = 10 * time.Second
	// mostOfPod is how many certificates a pod may have: each costs a key, and an object
	// of the apiserver's.
	mostOfPod = 32
	// issuedSoon is how long whoever wants a certificate waits for its first one; later
	// it is told that there is one.
	issuedSoon = 5 * time.Second
	// lostAfter is after how long, and at most half as long again, a request that is not
	// there counts as deleted.
	lostAfter = 10 * time.Minute
	// overdueAfter is after how long a renewal is late.
	overdueAfter = 10 * time.Minute
	// maxJitter spreads what would fall together.
	maxJitter = 5 * time.Minute
	// retryAfter is when a renewal is tried again that could not be asked for.
	retryAfter = time.Minute
)

// Issuer is the apiserver.
type Issuer interface {
	ServiceAccountUID(ctx context.Context, namespace, name string) (types.UID, error)
	Create(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) (*certificatesv1beta1.PodCertificateRequest, error)
}

// FromClient is the Issuer of a client; nil for a nil client.
func FromClient(client kubernetes.Interface) Issuer {
	if client == nil {
		return nil
	}
	return issuer{client}
}

type issuer struct{ client kubernetes.Interface }

func (i issuer) ServiceAccountUID(ctx context.Context, namespace, name string) (types.UID, error) {
	account, err := i.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return account.UID, nil
}

func (i issuer) Create(ctx context.Context, r *certificatesv1beta1.PodCertificateRequest) (*certificatesv1beta1.PodCertificateRequest, error) {
	return i.client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
}

// Objects is what is followed of the cluster; *objects.Store has it.
type Objects interface {
	Node(ctx context.Context) (*v1.Node, error)
	// PodCertificateRequests are those of this node.
	PodCertificateRequests(ctx context.Context) ([]certificatesv1beta1.PodCertificateRequest, error)
}

// Events records events on pods; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
}

// Deps are what a Cache needs.
type Deps struct {
	// Issuer is nil in standalone mode; Get then fails with a clear error.
	Issuer  Issuer
	Objects Objects
	Events  Events
}

// Request says which certificate: that of a source of a pod's projected volume.
type Request struct {
	Pod    *v1.Pod
	Volume string
	Index  int
	Source *v1.PodCertificateProjection
}

// Credential is a key with its certificates, as PEM.
type Credential struct {
	Key, Chain []byte
	// Refresh is when to ask Get again.
	Refresh time.Time
}

// Cache holds the certificates; safe for concurrent use.
type Cache struct {
	deps   Deps
	asking namespacelimit.Pool

	mu      sync.Mutex
	slots   map[types.UID]map[place]*slot
	changed chan struct{} // closed when requests change
}

// place is a source of a pod.
type place struct {
	volume string
	index  int
}

// slot is one certificate; who has the turn has the rest.
type slot struct {
	turn  chan struct{}
	shown shown // guarded by Cache.mu
	state
}

// New makes a Cache; it starts nothing.
func New(deps Deps) *Cache {
	return &Cache{deps: deps, slots: map[types.UID]map[place]*slot{}, changed: make(chan struct{})}
}

// Changed tells that requests for certificates have changed. It returns at once.
func (c *Cache) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cache) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Forget drops a pod's certificates.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.slots, uid)
}

// ErrStandalone says that there is no apiserver that could have certificates issued.
var ErrStandalone = errors.New("no certificate can be had: the node runs standalone, without an apiserver; remove the podCertificate source")

// ErrTooMany says that a pod names more certificates than it may.
var ErrTooMany = fmt.Errorf("the pod names more than %d certificates; name fewer podCertificate sources", mostOfPod)

var errNotIssued = errors.New("credential bundle is not issued yet")

// Get returns a certificate with its key. The first is waited for, for a while; of a
// later one the one before is returned until it is there.
func (c *Cache) Get(ctx context.Context, r Request) (Credential, error) {
	if c.deps.Issuer == nil {
		return Credential{}, ErrStandalone
	}
	s, ok := c.slot(r)
	if !ok {
		return Credential{}, ErrTooMany
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Credential{}, fmt.Errorf("get a certificate of pod %s/%s: %w", r.Pod.Namespace, r.Pod.Name, context.Cause(ctx))
	}
	soon := time.NewTimer(issuedSoon)
	defer soon.Stop()
	for {
		changed := c.next()
		cred, err := c.step(ctx, r, &s.state)
		c.show(r, s)
		if !errors.Is(err, errNotIssued) {
			return cred, err
		}
		select {
		case <-changed:
		case <-soon.C:
			return Credential{}, err
		case <-ctx.Done():
			return Credential{}, err
		}
	}
}

// slot is a certificate's place; false when the pod has too many.
func (c *Cache) slot(r Request) (*slot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.slots[r.Pod.UID]
	at := place{r.Volume, r.Index}
	if s := all[at]; s != nil {
		return s, true
	}
	if len(all) >= mostOfPod {
		return nil, false
	}
	if all == nil {
		all = map[place]*slot{}
		c.slots[r.Pod.UID] = all
	}
	s := &slot{turn: make(chan struct{}, 1), shown: shown{signer: r.Source.SignerName}}
	all[at] = s
	return s, true
}
