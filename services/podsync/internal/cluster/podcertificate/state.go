package podcertificate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// state is how far one certificate is.
type state struct {
	// key and chain are in use; empty before the first is issued.
	key, chain         []byte
	refreshAt, expires time.Time
	// toldOverdue and toldExpired: people were told.
	toldOverdue, toldExpired bool

	// pending is the request that is under way, with its key; empty for none. It counts
	// as deleted when it is not there at lostAt.
	pending    string
	pendingKey []byte
	lostAt     time.Time
	// notBefore is when another may be asked for, after one that could not be.
	notBefore time.Time

	// refused is why there will never be another.
	refused error
	// refusedAs is what the series call it.
	refusedAs string
}

// step takes a certificate as far as it can be taken now.
func (c *Cache) step(ctx context.Context, r Request, s *state) (Credential, error) {
	if s.refused != nil {
		return Credential{}, s.refused
	}
	now := time.Now()
	if s.pending != "" {
		if err := c.look(ctx, r, s, now); err != nil {
			return Credential{}, err
		}
	}
	if s.pending == "" && s.refused == nil && (s.chain == nil || !now.Before(s.refreshAt) && !now.Before(s.notBefore)) {
		if err := c.ask(ctx, r, s, now); err != nil {
			if s.chain == nil {
				return Credential{}, err
			}
			s.notBefore = now.Add(retryAfter)
			klog.FromContext(ctx).Info("Renewing a pod's certificate failed, the old one stays in use and it is tried again by itself", "pod", klog.KObj(r.Pod), "err", err)
		}
	}
	switch {
	case s.refused != nil:
		return Credential{}, s.refused
	case s.chain == nil:
		return Credential{}, errNotIssued
	}
	return Credential{Key: s.key, Chain: s.chain, Refresh: c.again(r, s, now)}, nil
}

// again tells people of a certificate that is late, and is when to look at it again.
func (c *Cache) again(r Request, s *state, now time.Time) time.Time {
	if now.Before(s.refreshAt) {
		return s.refreshAt
	}
	overdue := s.refreshAt.Add(overdueAfter)
	if !s.toldOverdue && !now.Before(overdue) {
		s.toldOverdue = true
		c.tell(r.Pod, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if !s.toldExpired && !now.Before(s.expires) {
		s.toldExpired = true
		c.tell(r.Pod, "CertificateExpired", "PodCertificate expired")
	}
	again := now.Add(retryAfter)
	if s.pending != "" {
		again = s.lostAt
	}
	for at, told := range map[time.Time]bool{overdue: s.toldOverdue, s.expires: s.toldExpired} {
		if !told && at.Before(again) {
			again = at
		}
	}
	return again
}

func (c *Cache) tell(pod *v1.Pod, reason, message string) {
	if c.deps.Events != nil {
		c.deps.Events.Pod(pod, v1.EventTypeWarning, reason, message)
	}
}

// look looks what became of the request that is under way.
func (c *Cache) look(ctx context.Context, r Request, s *state, now time.Time) error {
	all, err := c.deps.Objects.PodCertificateRequests(ctx)
	if err != nil {
		if s.chain != nil {
			return nil // what is in use stays
		}
		return err
	}
	for i := range all {
		if all[i].Namespace == r.Pod.Namespace && all[i].Name == s.pending {
			c.take(r, s, &all[i])
			return nil
		}
	}
	if !now.Before(s.lostAt) {
		s.pending, s.pendingKey = "", nil
	}
	return nil
}

// take takes what a request's status says.
func (c *Cache) take(r Request, s *state, pcr *certificatesv1beta1.PodCertificateRequest) {
	name := pcr.Namespace + "/" + pcr.Name
	refuse := func(cond metav1.Condition, kind, past string) {
		*s = state{refusedAs: past, refused: fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", past, cond.Reason, cond.Message)}
		verb := "failed"
		if past == denied {
			verb = "was denied"
		}
		c.tell(r.Pod, kind, fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", name, verb, cond.Reason, cond.Message))
	}
	for _, cond := range pcr.Status.Conditions {
		switch cond.Type {
		case certificatesv1beta1.PodCertificateRequestConditionTypeDenied:
			refuse(cond, cond.Type, denied)
			return
		case certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			refuse(cond, cond.Type, failed)
			return
		case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			next := state{key: s.pendingKey, chain: cleanChain(pcr.Status.CertificateChain)}
			if len(next.chain) == 0 {
				refuse(cond, certificatesv1beta1.PodCertificateRequestConditionTypeFailed, failed)
				return
			}
			next.refreshAt = time.Now().Add(retryAfter) // whatever a signer says
			if begin := pcr.Status.BeginRefreshAt; begin != nil {
				if at := begin.Add(jitter()); at.After(next.refreshAt) {
					next.refreshAt = at
				}
			}
			if at := pcr.Status.NotAfter; at != nil {
				next.expires = at.Time
			}
			*s = next
			return
		}
	}
}

// ask makes a key and a request for its certificate.
func (c *Cache) ask(ctx context.Context, r Request, s *state, now time.Time) error {
	release, err := c.asking.Acquire(ctx, r.Pod.Namespace)
	if err != nil {
		return fmt.Errorf("many certificates of namespace %s are asked for: %w", r.Pod.Namespace, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	account, err := c.deps.Issuer.ServiceAccountUID(ctx, r.Pod.Namespace, r.Pod.Spec.ServiceAccountName)
	if err != nil {
		return fmt.Errorf("while fetching service account: %w", err)
	}
	node, err := c.deps.Objects.Node(ctx)
	if err != nil {
		return fmt.Errorf("while getting node object from local cache: %w", err)
	}
	key, proof, err := newKey(r.Source.KeyType)
	if err != nil {
		return fmt.Errorf("while generating keypair: %w", err)
	}
	made, err := c.deps.Issuer.Create(ctx, &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: r.Pod.Name, UID: r.Pod.UID}},
		},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: r.Source.SignerName, PodName: r.Pod.Name, PodUID: r.Pod.UID,
			ServiceAccountName: r.Pod.Spec.ServiceAccountName, ServiceAccountUID: account,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: r.Source.MaxExpirationSeconds, StubPKCS10Request: proof, UnverifiedUserAnnotations: r.Source.UserAnnotations,
		},
	})
	if err != nil {
		return fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	s.pending, s.pendingKey, s.lostAt = made.Name, key, now.Add(lostAfter+jitter())
	return nil
}

// jitter spreads what would fall together.
func jitter() time.Duration { return rand.N(maxJitter) }
