package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// judge answers reviews and remembers them.
type judge struct {
	authorizationclient.SubjectAccessReviewInterface
	asked  []authorizationv1.SubjectAccessReviewSpec
	status authorizationv1.SubjectAccessReviewStatus
	errs   []error
}

func (j *judge) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	j.asked = append(j.asked, r.Spec)
	if len(j.errs) > 0 {
		err := j.errs[0]
		j.errs = j.errs[1:]
		if err != nil {
			return nil, err
		}
	}
	return &authorizationv1.SubjectAccessReview{Status: j.status}, nil
}

func wants(name, subresource string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"scopes": {"a", "b"}}},
		Verb: "get", APIVersion: "v1", Resource: "nodes", Subresource: subresource, Name: "n1", ResourceRequest: true, Path: "/x",
	}
}

func newJudged(j *judge) *reviewer {
	return newReviewer(Config{AllowTTL: 5 * time.Minute, DenyTTL: 30 * time.Second}, j)
}

func TestAReviewSaysWhoWantsWhat(t *testing.T) {
	j := &judge{}
	if _, _, err := newJudged(j).Authorize(t.Context(), wants("eve", "proxy")); err != nil {
		t.Fatal(err)
	}
	got := j.asked[0]
	if got.User != "eve" || got.UID != "7" || !slices.Equal(got.Groups, []string{"g"}) || !slices.Equal(got.Extra["scopes"], []string{"a", "b"}) {
		t.Errorf("who: %+v", got)
	}
	want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "n1"}
	if got.NonResourceAttributes != nil || got.ResourceAttributes == nil || *got.ResourceAttributes != want {
		t.Errorf("what: %+v", got)
	}
	if _, _, err := newJudged(j).Authorize(t.Context(), authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}); err != nil {
		t.Fatal(err)
	}
	if got := j.asked[1]; got.ResourceAttributes != nil || got.NonResourceAttributes == nil || got.NonResourceAttributes.Path != "/metrics" {
		t.Errorf("a path: %+v", got)
	}
}

func TestOnlyAnUncontradictedAllowAllows(t *testing.T) {
	for _, c := range []struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   authorizer.Decision
		fails  bool
	}{
		{authorizationv1.SubjectAccessReviewStatus{Allowed: true}, authorizer.DecisionAllow, false},
		{authorizationv1.SubjectAccessReviewStatus{}, authorizer.DecisionNoOpinion, false},
		{authorizationv1.SubjectAccessReviewStatus{Denied: true}, authorizer.DecisionDeny, false},
		{authorizationv1.SubjectAccessReviewStatus{Denied: true, Allowed: true}, authorizer.DecisionDeny, true},
		{authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no role"}, authorizer.DecisionNoOpinion, false},
	} {
		got, _, err := newJudged(&judge{status: c.status}).Authorize(t.Context(), wants("eve", "proxy"))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v; want %v", c.status, got, err, c.want)
		}
	}
}

func TestAnswersAreKeptForTheirTimeAndForTheirQuestionOnly(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}
			r := newJudged(j)
			ask := func(who, what string, asked int) {
				t.Helper()
				decision, _, err := r.Authorize(t.Context(), wants(who, what))
				if err != nil || (decision == authorizer.DecisionAllow) != allowed || len(j.asked) != asked {
					t.Errorf("allowed %v: %v, %v after %d reviews, want %d", allowed, decision, err, len(j.asked), asked)
				}
			}
			kept := 30 * time.Second
			if allowed {
				kept = 5 * time.Minute
			}
			ask("eve", "proxy", 1)
			time.Sleep(kept - time.Second)
			ask("eve", "proxy", 1)
			ask("eve", "pods", 2)
			ask("adam", "proxy", 3)
			time.Sleep(2 * time.Second)
			ask("eve", "proxy", 4)
		})
	}
}

func TestAQuestionTooLargeToKeepIsAskedEachTime(t *testing.T) {
	j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	r := newJudged(j)
	for range 2 {
		if decision, _, err := r.Authorize(t.Context(), wants(strings.Repeat("e", longestQuestion), "proxy")); err != nil || decision != authorizer.DecisionAllow {
			t.Errorf("%v, %v", decision, err)
		}
	}
	if len(j.asked) != 2 || len(r.answers.Keys()) != 0 {
		t.Errorf("%d reviews, %d answers kept", len(j.asked), len(r.answers.Keys()))
	}
}

func TestAnErrorAllowsNobodyAndIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := apierrors.NewTooManyRequests("busy", 0)
		j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, errs: []error{errors.New("no route")}}
		r := newJudged(j)
		if decision, _, err := r.Authorize(t.Context(), wants("eve", "proxy")); err == nil || decision != authorizer.DecisionNoOpinion || len(j.asked) != 1 {
			t.Errorf("no route: %v, %v after %d reviews", decision, err, len(j.asked))
		}
		j.errs = []error{busy, busy, nil}
		if decision, _, err := r.Authorize(t.Context(), wants("eve", "proxy")); err != nil || decision != authorizer.DecisionAllow || len(j.asked) != 4 {
			t.Errorf("busy, then an answer: %v, %v after %d reviews", decision, err, len(j.asked))
		}
		j.errs = []error{busy, busy, busy, busy, busy, busy}
		if decision, _, err := r.Authorize(t.Context(), wants("adam", "proxy")); err == nil || decision != authorizer.DecisionNoOpinion || len(j.asked) != 9 {
			t.Errorf("busy five times: %v, %v after %d reviews", decision, err, len(j.asked))
		}
	})
}
