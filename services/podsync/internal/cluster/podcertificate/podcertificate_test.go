package podcertificate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cluster is an apiserver with requests, and who is told of events.
type cluster struct {
	mu     sync.Mutex
	all    []certificatesv1beta1.PodCertificateRequest
	fail   error
	events []string
}

func (c *cluster) ServiceAccountUID(_ context.Context, ns, name string) (types.UID, error) {
	return types.UID("uid of " + ns + "/" + name), nil
}

func (c *cluster) Create(_ context.Context, r *certificatesv1beta1.PodCertificateRequest) (*certificatesv1beta1.PodCertificateRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return nil, c.fail
	}
	made := r.DeepCopy()
	made.Name = fmt.Sprintf("%s%d", r.GenerateName, len(c.all))
	c.all = append(c.all, *made)
	return made, nil
}

func (c *cluster) Node(context.Context) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}, nil
}

func (c *cluster) PodCertificateRequests(context.Context) ([]certificatesv1beta1.PodCertificateRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all), nil
}

func (c *cluster) Pod(_ *v1.Pod, _, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, reason+": "+message)
}

func (c *cluster) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// says gives the last request a condition.
func (c *cluster) says(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := &c.all[len(c.all)-1]
	last.Status.Conditions = []metav1.Condition{{Type: kind, Reason: "Because", Message: "of that"}}
	begin, end := metav1.NewTime(time.Now().Add(time.Hour)), metav1.NewTime(time.Now().Add(2*time.Hour))
	last.Status.BeginRefreshAt, last.Status.NotAfter = &begin, &end
	last.Status.CertificateChain = "words\n-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\nwords"
}

const chain = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"

func request() Request {
	return Request{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{ServiceAccountName: "sa"}},
		Volume: "v", Source: &v1.PodCertificateProjection{SignerName: "x/y", KeyType: "ED25519"},
	}
}

func inBubble(t *testing.T, f func(t *testing.T, c *Cache, api *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		api := &cluster{}
		f(t, New(Deps{Issuer: api, Objects: api, Events: api}), api)
	})
}

// issued gets the first certificate.
func issued(t *testing.T, c *Cache, api *cluster) Credential {
	t.Helper()
	got := make(chan Credential, 1)
	go func() {
		cred, err := c.Get(t.Context(), request())
		if err != nil {
			t.Error(err)
		}
		got <- cred
	}()
	synctest.Wait()
	api.says(certificatesv1beta1.PodCertificateRequestConditionTypeIssued)
	c.Changed()
	return <-got
}

func TestACertificateIsAskedForAndWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
		begun := time.Now()
		cred := issued(t, c, api)
		if string(cred.Chain) != chain || !strings.HasPrefix(string(cred.Key), "-----BEGIN PRIVATE KEY-----") || time.Since(begun) != 0 {
			t.Errorf("after %v it is %q", time.Since(begun), cred.Chain)
		}
		if at := time.Until(cred.Refresh); at < time.Hour || at > time.Hour+maxJitter {
			t.Errorf("it is looked at again after %v", at)
		}
		spec := api.all[0].Spec
		if spec.PodUID != "u" || spec.ServiceAccountUID != "uid of ns/sa" || spec.NodeName != "n" || spec.NodeUID != "node-uid" || spec.SignerName != "x/y" || len(spec.StubPKCS10Request) == 0 {
			t.Errorf("the request is %+v", spec)
		}
		again, err := c.Get(t.Context(), request())
		if err != nil || string(again.Key) != string(cred.Key) || api.made() != 1 {
			t.Errorf("once more it is another, or %v, after %d requests", err, api.made())
		}
		c.Forget("u")
		if len(c.slots) != 0 {
			t.Error("it is kept though its pod is gone")
		}
	})
}

func TestAPodIsNotKeptWaitingForACertificateForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
		begun := time.Now()
		if _, err := c.Get(t.Context(), request()); !errors.Is(err, errNotIssued) || time.Since(begun) != issuedSoon || api.made() != 1 {
			t.Errorf("after %v: %v, with %d requests", time.Since(begun), err, api.made())
		}
		api.says(certificatesv1beta1.PodCertificateRequestConditionTypeIssued)
		if cred, err := c.Get(t.Context(), request()); err != nil || string(cred.Chain) != chain || api.made() != 1 {
			t.Errorf("%q, %v, with %d requests", cred.Chain, err, api.made())
		}
	})
}

func TestACertificateIsRenewedAndTheOldOneServesUntilThen(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
		first := issued(t, c, api)
		time.Sleep(time.Until(first.Refresh))
		api.fail = errors.New("away")
		late, err := c.Get(t.Context(), request())
		if err != nil || string(late.Key) != string(first.Key) || time.Until(late.Refresh) != retryAfter || api.made() != 1 {
			t.Errorf("while nothing can be asked for: %v, again after %v", err, time.Until(late.Refresh))
		}
		api.fail = nil
		time.Sleep(retryAfter)
		waiting, err := c.Get(t.Context(), request())
		if err != nil || string(waiting.Key) != string(first.Key) || api.made() != 2 {
			t.Errorf("while the next is not there: %v, with %d requests", err, api.made())
		}
		time.Sleep(20 * time.Minute)
		_, _ = c.Get(t.Context(), request())
		time.Sleep(2 * time.Hour)
		_, _ = c.Get(t.Context(), request())
		_, _ = c.Get(t.Context(), request())
		want := []string{"CertificateOverdueForRefresh: PodCertificate refresh overdue", "CertificateExpired: PodCertificate expired"}
		if !slices.Equal(api.events, want) {
			t.Errorf("told was %q", api.events)
		}
		api.says(certificatesv1beta1.PodCertificateRequestConditionTypeIssued)
		second, err := c.Get(t.Context(), request())
		if err != nil || string(second.Key) == string(first.Key) {
			t.Errorf("the new one has the old key, or %v", err)
		}
	})
}

func TestAPodWhoseCertificateIsRefusedIsToldOnceAndNeverAsksAgain(t *testing.T) {
	for kind, want := range map[string][2]string{
		certificatesv1beta1.PodCertificateRequestConditionTypeDenied: {`PodCertificateRequest was permanently denied: reason="Because" message="of that"`, `Denied: PodCertificateRequest ns/req-0 was denied, reason="Because", message="of that"`},
		certificatesv1beta1.PodCertificateRequestConditionTypeFailed: {`PodCertificateRequest was permanently failed: reason="Because" message="of that"`, `Failed: PodCertificateRequest ns/req-0 failed, reason="Because", message="of that"`},
	} {
		inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
			_, _ = c.Get(t.Context(), request())
			api.says(kind)
			for range 2 {
				if _, err := c.Get(t.Context(), request()); err == nil || err.Error() != want[0] {
					t.Errorf("%s: %v", kind, err)
				}
			}
			if !slices.Equal(api.events, []string{want[1]}) || api.made() != 1 {
				t.Errorf("%s: told was %q, with %d requests", kind, api.events, api.made())
			}
		})
	}
}

func TestARequestThatIsGoneIsMadeAnewAfterAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, api *cluster) {
		_, _ = c.Get(t.Context(), request())
		api.all[0].Name = "another"
		time.Sleep(lostAfter - time.Minute)
		if _, _ = c.Get(t.Context(), request()); api.made() != 1 {
			t.Errorf("%d requests", api.made())
		}
		time.Sleep(maxJitter + time.Minute)
		if _, _ = c.Get(t.Context(), request()); api.made() != 2 {
			t.Errorf("%d requests", api.made())
		}
	})
}

func TestAPodHasNoEndOfCertificates(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cache, _ *cluster) {
		r := request()
		for r.Index = range mostOfPod {
			if _, ok := c.slot(r); !ok {
				t.Fatal(r.Index)
			}
		}
		r.Index = mostOfPod
		if _, err := c.Get(t.Context(), r); err == nil || !strings.Contains(err.Error(), "more than 32") {
			t.Error(err)
		}
	})
	if _, err := New(Deps{Issuer: FromClient(nil)}).Get(t.Context(), request()); err == nil || !strings.Contains(err.Error(), "standalone") {
		t.Error(err)
	}
}
