package fakeapiserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestATokenIsIssuedBoundAndReviewedUntilItExpires(t *testing.T) {
	cfg := fakeapiserver.Config{Tokens: map[string]authnv1.UserInfo{"static": {Username: "alice"}}}
	bubble(t, cfg, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		p := mustCreate(t, c, pod("a", "n1"))
		seconds := int64(600)
		request := func(account string, uid types.UID) (*authnv1.TokenRequest, error) {
			return c.CoreV1().ServiceAccounts("ns").CreateToken(ctx, account, &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{
				Audiences: []string{"vault"}, ExpirationSeconds: &seconds,
				BoundObjectRef: &authnv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "a", UID: uid},
			}}, metav1.CreateOptions{})
		}
		if _, err := request("absent", p.UID); !apierrors.IsNotFound(err) {
			t.Errorf("absent account: %v", err)
		}
		if _, err := request("default", "other"); !apierrors.IsConflict(err) {
			t.Errorf("bound to another pod: %v", err)
		}
		got, err := request("default", p.UID)
		if err != nil || time.Until(got.Status.ExpirationTimestamp.Time).Round(time.Second) != 10*time.Minute {
			t.Fatalf("%v, %+v", err, got)
		}
		review := func(token, audience string) authnv1.TokenReviewStatus {
			out, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authnv1.TokenReview{
				Spec: authnv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return out.Status
		}
		if st := review(got.Status.Token, "vault"); !st.Authenticated || st.User.Username != "system:serviceaccount:ns:default" {
			t.Errorf("review: %+v", st)
		}
		if st := review(got.Status.Token, "elsewhere"); st.Authenticated {
			t.Errorf("review for another audience: %+v", st)
		}
		if st := review("static", "x"); st.User.Username != "alice" {
			t.Errorf("static token: %+v", st)
		}
		time.Sleep(11 * time.Minute)
		if st := review(got.Status.Token, "vault"); st.Authenticated {
			t.Error("the token is good after its time")
		}
	})
}

func TestReviewsOfAccessFollowTheConfig(t *testing.T) {
	cfg := fakeapiserver.Config{Authorize: func(s authzv1.SubjectAccessReviewSpec) (bool, string) { return s.User == "alice", "because" }}
	bubble(t, cfg, func(ctx context.Context, _ *fakeapiserver.Server, c kubernetes.Interface) {
		for user, want := range map[string]bool{"alice": true, "bob": false} {
			got, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authzv1.SubjectAccessReview{
				Spec: authzv1.SubjectAccessReviewSpec{User: user},
			}, metav1.CreateOptions{})
			if err != nil || got.Status.Allowed != want || got.Status.Reason != "because" {
				t.Errorf("%s: %v, %+v", user, err, got.Status)
			}
		}
	})
}

func TestBothFacesOfEventsShareOneStore(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		_, err := c.EventsV1().Events("ns").Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, Note: "hello", Reason: "Said", Type: "Normal",
			Regarding: corev1.ObjectReference{Kind: "Pod", Name: "a"}, EventTime: metav1.NowMicro(),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.CoreV1().Events("ns").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=a,reason=Said"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Message != "hello" || len(s.Events()) != 1 {
			t.Fatalf("%v, %+v", err, list)
		}
		name := list.Items[0].Name
		_, err = c.CoreV1().Events("ns").Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
		got, getErr := c.EventsV1().Events("ns").Get(ctx, name, metav1.GetOptions{})
		if err != nil || getErr != nil || got.DeprecatedCount != 2 || got.Note != "hello" {
			t.Errorf("%v, %v, %+v", err, getErr, got)
		}
	})
}

func TestACertificateRequestIsSignedOrLeftPending(t *testing.T) {
	for name, sign := range map[string]func(*certv1.CertificateSigningRequest) ([]byte, error){
		"pending": nil,
		"signed":  func(*certv1.CertificateSigningRequest) ([]byte, error) { return []byte("cert"), nil },
		"failed":  func(*certv1.CertificateSigningRequest) ([]byte, error) { return nil, errors.New("no") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fakeapiserver.Config{SignCSR: sign}, func(ctx context.Context, _ *fakeapiserver.Server, c kubernetes.Interface) {
				got, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, &certv1.CertificateSigningRequest{
					ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certv1.CertificateSigningRequestSpec{SignerName: "s"},
				}, metav1.CreateOptions{})
				if err != nil || (string(got.Status.Certificate) == "cert") != (name == "signed") || (len(got.Status.Conditions) == 0) != (name == "pending") {
					t.Errorf("%v, %+v", err, got.Status)
				}
			})
		})
	}
}

func TestLeasesAreUpdatedOptimistically(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, _ *fakeapiserver.Server, c kubernetes.Interface) {
		leases := c.CoordinationV1().Leases("kube-node-lease")
		l, err := leases.Create(ctx, &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		l.Spec.RenewTime = &now
		if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("stale update: %v", err)
		}
	})
}

func TestBindingSetsTheNodeOnceAndAWatchByNodeSeesItAsAdded(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		mustCreate(t, c, pod("a", ""))
		w, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		bind := func() error {
			return c.CoreV1().Pods("ns").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Name: "n1"}}, metav1.CreateOptions{})
		}
		if err := bind(); err != nil {
			t.Fatal(err)
		}
		if ev := <-w.ResultChan(); ev.Type != watch.Added || ev.Object.(*corev1.Pod).Spec.NodeName != "n1" {
			t.Errorf("got %v", ev)
		}
		if err := bind(); !apierrors.IsConflict(err) {
			t.Errorf("second binding: %v", err)
		}
		zero := int64(0)
		_ = c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero})
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			if ev := <-w.ResultChan(); ev.Type != want {
				t.Errorf("got %v, want %s", ev, want)
			}
		}
	})
}

func TestFinalizersHoldADeletionBack(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		p := pod("a", "n1")
		p.Finalizers = []string{"example.com/hold"}
		mustCreate(t, c, p)
		zero := int64(0)
		if err := c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		if got := s.Pod("ns", "a"); got == nil || got.DeletionTimestamp == nil {
			t.Fatalf("after the delete: %v", got)
		}
		if _, err := c.CoreV1().Pods("ns").Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if s.Pod("ns", "a") != nil {
			t.Error("still there without its finalizer")
		}
	})
}

func TestAFinishedContainerMayNotRunAgainInTheStatus(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, _ *fakeapiserver.Server, c kubernetes.Interface) {
		p := pod("a", "n1")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		mustCreate(t, c, p)
		patch := func(state string) error {
			body := `{"status":{"containerStatuses":[{"name":"c","image":"app","imageID":"","ready":false,"restartCount":0,"state":` + state + `}]}}`
			_, err := c.CoreV1().Pods("ns").Patch(ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
			return err
		}
		if err := patch(`{"terminated":{"exitCode":1}}`); err != nil {
			t.Fatal(err)
		}
		if err := patch(`{"running":{},"terminated":null}`); !apierrors.IsInvalid(err) {
			t.Errorf("running again: %v", err)
		}
	})
}

func TestAWatchIsCutDelayedAndExpiredAsTheFaultSays(t *testing.T) {
	var fault fakeapiserver.Fault
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Verb == "watch" {
			return fault
		}
		return fakeapiserver.Fault{}
	}}
	bubble(t, cfg, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		admin := s.Admin()
		watchWith := func(f fakeapiserver.Fault) watch.Interface {
			fault = f
			w, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: s.Pods()[0].ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		mustCreate(t, admin, pod("a", "n1"))
		began := time.Now()
		if _, open := <-watchWith(fakeapiserver.Fault{CutAfter: 7 * time.Second}).ResultChan(); open || time.Since(began) != 7*time.Second {
			t.Errorf("cut after %v, open %v", time.Since(began), open)
		}
		if ev := <-watchWith(fakeapiserver.Fault{Expire: true}).ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) {
			t.Errorf("got %v", ev)
		}
		late := watchWith(fakeapiserver.Fault{EventDelay: 3 * time.Second, CutAfterEvents: 1})
		synctest.Wait()
		mustCreate(t, admin, pod("b", "n1"))
		mustCreate(t, admin, pod("c", "n1"))
		began = time.Now()
		ev := <-late.ResultChan()
		if ev.Type != watch.Added || time.Since(began) != 3*time.Second {
			t.Errorf("got %v after %v", ev, time.Since(began))
		}
		if _, open := <-late.ResultChan(); open {
			t.Error("the watch is open after its event")
		}
	})
}

func TestRandomFaultsReplayFromTheirSeed(t *testing.T) {
	rates := fakeapiserver.Rates{Err: .2, TooMany: .1, Drop: .1, LostResponse: .1, Delay: .3, CutWatch: .5}
	a, b, c := fakeapiserver.RandomFaults(1, rates), fakeapiserver.RandomFaults(1, rates), fakeapiserver.RandomFaults(2, rates)
	differ, bad := false, 0
	for n := range 200 {
		q := fakeapiserver.Request{Verb: "patch", Resource: "pods", Subresource: "status", Name: "a", N: n}
		fa := a(q)
		if fa != b(q) {
			t.Fatalf("request %d: %+v and %+v", n, fa, b(q))
		}
		differ = differ || fa != c(q)
		if fa.Status != 0 || fa.Drop || fa.After {
			bad++
		}
	}
	if !differ || bad < 50 || bad > 150 {
		t.Errorf("seeds differ: %v, %d of 200 bad", differ, bad)
	}
}

func TestARealListenerServesProtobufClientsToo(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Config{})
	defer s.Close()
	url, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: url}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hc.CloseIdleConnections()
	c, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, c, pod("a", "n1"))
	if ev := <-w.ResultChan(); ev.Type != watch.Added {
		t.Errorf("got %v", ev)
	}
	w.Stop()
	if err := c.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if v, err := c.Discovery().ServerVersion(); err != nil || v.Minor != "36" {
		t.Errorf("%v, %v", v, err)
	}
}
