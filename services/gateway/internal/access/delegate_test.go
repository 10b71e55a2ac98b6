package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// judge is an apiserver that answers SubjectAccessReviews and remembers them.
type judge struct {
	asked  []authorizationv1.SubjectAccessReviewSpec
	status authorizationv1.SubjectAccessReviewStatus
	// busy is how many of the next questions are refused for its load, away how
	// many find no apiserver.
	busy, away int
	// slow is how long an answer takes.
	slow time.Duration
}

// ReviewToken implements Reviewer.
func (*judge) ReviewToken(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, *metav1.Status, error) {
	return nil, nil, errors.New("nobody asked for a token here")
}

// ReviewAccess implements Reviewer.
func (j *judge) ReviewAccess(_ context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, *metav1.Status, error) {
	j.asked = append(j.asked, review.Spec)
	time.Sleep(j.slow)
	switch {
	case j.away > 0:
		j.away--
		return nil, nil, errors.New("no route")
	case j.busy > 0:
		j.busy--
		return nil, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: "busy"}, nil
	}
	answer := review.DeepCopy()
	answer.Status = j.status
	return answer, nil, nil
}

func wants(name, subresource string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"scopes": {"a", "b"}}},
		Verb: "get", APIVersion: "v1", Resource: "nodes", Subresource: subresource, Name: "n1", ResourceRequest: true, Path: "/x",
	}
}

func newJudged(t *testing.T, j *judge) authorizer.Authorizer {
	t.Helper()
	_, authz := New(Config{Anonymous: true, AllowTTL: 5 * time.Minute, DenyTTL: 30 * time.Second}, j, nil)
	return authz
}

func TestAReviewSaysWhoWantsWhat(t *testing.T) {
	j := &judge{}
	authz := newJudged(t, j)
	if _, _, err := authz.Authorize(t.Context(), wants("eve", "proxy")); err != nil {
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
	if _, _, err := authz.Authorize(t.Context(), authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}); err != nil {
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
		got, _, err := newJudged(t, &judge{status: c.status}).Authorize(t.Context(), wants("eve", "proxy"))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v; want %v", c.status, got, err, c.want)
		}
	}
}

func TestAnswersAreKeptForTheirTimeAndForTheirQuestionOnly(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}
			authz := newJudged(t, j)
			ask := func(who, what string, asked int) {
				t.Helper()
				decision, _, err := authz.Authorize(t.Context(), wants(who, what))
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

func TestAnErrorAllowsNobodyAndIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, away: 1}
		authz := newJudged(t, j)
		ask := func(what, who string, want authorizer.Decision, asked int) {
			t.Helper()
			decision, _, err := authz.Authorize(t.Context(), wants(who, "proxy"))
			if decision != want || (err == nil) != (want == authorizer.DecisionAllow) || len(j.asked) != asked {
				t.Errorf("%s: %v, %v after %d reviews, want %v after %d", what, decision, err, len(j.asked), want, asked)
			}
		}
		ask("no route", "eve", authorizer.DecisionNoOpinion, 1)
		j.busy = 2
		ask("busy, then an answer", "eve", authorizer.DecisionAllow, 4)
		j.busy = 6
		ask("busy five times", "adam", authorizer.DecisionNoOpinion, 9)
	})
}

func TestEqualQuestionsAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, slow: time.Second}
		authz := newJudged(t, j)
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				if decision, _, err := authz.Authorize(t.Context(), wants("eve", "proxy")); decision != authorizer.DecisionAllow || err != nil {
					t.Errorf("%v, %v", decision, err)
				}
			})
		}
		group.Wait()
		if len(j.asked) != 1 {
			t.Errorf("%d reviews", len(j.asked))
		}
	})
}
