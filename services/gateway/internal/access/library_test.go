package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What decides who may run commands on a node is held to the apiserver
// library's delegating authorizer: the same questions, the same decisions.
func TestAReviewerAsksAndDecidesAsTheLibraryDoes(t *testing.T) {
	who := &user.DefaultInfo{Name: "eve", UID: "7", Groups: []string{"g", "h"}, Extra: map[string][]string{"scopes": {"a", "b"}}}
	questions := map[string]authorizer.Attributes{
		"a node's subresource": authorizer.AttributesRecord{User: who, Verb: "create", APIVersion: "v1", Resource: "nodes", Subresource: "exec", Name: "n", ResourceRequest: true, Path: "/exec/a/b/c"},
		"a node":               authorizer.AttributesRecord{User: who, Verb: "get", APIVersion: "v1", Resource: "nodes", Name: "n", ResourceRequest: true},
		"in a group":           authorizer.AttributesRecord{User: who, Verb: "list", APIGroup: "apps", APIVersion: "v1", Namespace: "ns", Resource: "things", ResourceRequest: true},
		"a path":               authorizer.AttributesRecord{User: who, Verb: "get", Path: "/metrics"},
		"a stranger":           authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, Verb: "get", Path: "/pods"},
		"without a user":       authorizer.AttributesRecord{Verb: "get", Path: "/pods"},
	}
	answers := map[string]struct {
		status  authorizationv1.SubjectAccessReviewStatus
		refusal int // the HTTP status, when it is not an answer
	}{
		"allows":                {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "a role"}},
		"denies":                {status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "a policy"}},
		"has no opinion":        {status: authorizationv1.SubjectAccessReviewStatus{Reason: "no role"}},
		"allows and denies":     {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}},
		"could not look":        {status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no such role"}},
		"is forbidden":          {refusal: http.StatusForbidden},
		"is unauthorized":       {refusal: http.StatusUnauthorized},
		"is not found":          {refusal: http.StatusNotFound},
		"is a bad request":      {refusal: http.StatusBadRequest},
		"allows, with a reason": {status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "again", EvaluationError: "half"}},
	}
	for asked, question := range questions {
		for answered, answer := range answers {
			t.Run(fmt.Sprintf("%s, the apiserver %s", asked, answered), func(t *testing.T) {
				var reviews []authorizationv1.SubjectAccessReviewSpec
				apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					var review authorizationv1.SubjectAccessReview
					if err := json.NewDecoder(req.Body).Decode(&review); err != nil || req.Method != http.MethodPost || req.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
						t.Errorf("%s %s: %v", req.Method, req.URL.Path, err)
					}
					reviews = append(reviews, review.Spec)
					review.Status = answer.status
					w.Header().Set("Content-Type", "application/json")
					var body any = review
					if answer.refusal != 0 {
						w.WriteHeader(answer.refusal)
						body = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(answer.refusal), Message: "no"}
					}
					if err := json.NewEncoder(w).Encode(body); err != nil {
						t.Error(err)
					}
				}))
				defer apiserver.Close()
				client, err := kubernetes.NewForConfig(&rest.Config{Host: apiserver.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
				if err != nil {
					t.Fatal(err)
				}
				cfg := Config{AllowTTL: time.Minute, DenyTTL: time.Minute}
				ours := newReviewer(cfg, client.AuthorizationV1().SubjectAccessReviews())
				library, err := authorizerfactory.DelegatingAuthorizerConfig{
					SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: cfg.AllowTTL, DenyCacheTTL: cfg.DenyTTL,
					WebhookRetryBackoff: webhookBackoff(),
				}.New()
				if err != nil {
					t.Fatal(err)
				}
				for _, again := range []string{"at first", "once more"} {
					reviews = nil
					gotDecision, gotReason, gotErr := ours.Authorize(t.Context(), question)
					got := reviews
					reviews = nil
					wantDecision, wantReason, wantErr := library.Authorize(t.Context(), question)
					if gotDecision != wantDecision || gotReason != wantReason || (gotErr == nil) != (wantErr == nil) {
						t.Errorf("%s: %v, %q, %v; the library says %v, %q, %v", again, gotDecision, gotReason, gotErr, wantDecision, wantReason, wantErr)
					}
					if !reflect.DeepEqual(got, reviews) {
						t.Errorf("%s: asked %+v\nthe library asks %+v", again, got, reviews)
					}
				}
			})
		}
	}
}
