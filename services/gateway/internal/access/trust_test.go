package access

import (
	"context"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// bundled is a CA of which only the bundle is looked at.
type bundled struct {
	CA
	text string
}

func (b *bundled) CurrentCABundleContent() []byte { return []byte(b.text) }

// member is an apiserver that knows everybody while the node is in its cluster.
type member struct {
	left  bool
	asked int
}

func (m *member) ReviewToken(_ context.Context, q *authenticationv1.TokenReview) (*authenticationv1.TokenReview, *metav1.Status, error) {
	m.asked++
	answer := q.DeepCopy()
	answer.Status = authenticationv1.TokenReviewStatus{Authenticated: !m.left, User: authenticationv1.UserInfo{Username: "prometheus"}}
	return answer, nil, nil
}

func (m *member) ReviewAccess(_ context.Context, q *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, *metav1.Status, error) {
	m.asked++
	answer := q.DeepCopy()
	answer.Status.Allowed = !m.left
	return answer, nil, nil
}

// kubeadm reset and join put another bundle there while the gateway runs, before nodestatus
// has a certificate of the other cluster, with which it begins anew.
func TestWhatAClusterSaidIsForgottenWithItsAuthorityAndWithWhoAskedIt(t *testing.T) {
	var life uint64
	ca, apiserver := &bundled{text: "first"}, &member{}
	authn, authz := New(Config{WebhookAuthentication: true, TokenTTL: time.Hour, AllowTTL: time.Hour, DenyTTL: time.Hour, Runs: func() uint64 { return life }}, apiserver, ca)
	for _, step := range []struct {
		bundle string
		life   uint64
		left   bool
		asked  int
		in     bool
	}{
		{"first", 1, false, 2, true},
		{"first", 1, true, 2, true}, // what it said counts for its time
		{"second", 1, false, 4, true},
		{"second", 1, true, 4, true},
		{"second", 2, true, 6, false},
		{"second", 2, false, 6, false}, // that it may nothing is kept, too
	} {
		ca.text, life, apiserver.left = step.bundle, step.life, step.left
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://n1/metrics", http.NoBody)
		req.Header.Set("Authorization", "Bearer secret")
		_, known, _ := authn.AuthenticateRequest(req)
		decision, _, err := authz.Authorize(t.Context(), wants("prometheus", "metrics"))
		if in := known && decision == authorizer.DecisionAllow; err != nil || in != step.in || apiserver.asked != step.asked {
			t.Errorf("%+v: let in: %v, %v after %d questions", step, in, err, apiserver.asked)
		}
	}
}
