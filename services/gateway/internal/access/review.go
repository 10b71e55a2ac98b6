package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/webhook"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

const (
	// keptAnswers bounds how many answers are kept, longestQuestion the size of
	// the question to one that is, in bytes: names and groups come from outside.
	keptAnswers     = 8192
	longestQuestion = 10000
)

// reviewer asks the apiserver with SubjectAccessReviews. It does what the
// apiserver library's delegating authorizer does without match conditions,
// which a node has none of; for those the library links CEL, whose tables all
// five processes would fill at their start.
type reviewer struct {
	reviews           authorizationclient.SubjectAccessReviewInterface
	backoff           wait.Backoff
	allowTTL, denyTTL time.Duration
	answers           *cache.LRUExpireCache
}

func newReviewer(cfg Config, reviews authorizationclient.SubjectAccessReviewInterface) *reviewer {
	return &reviewer{
		reviews: reviews, backoff: *webhookBackoff(), allowTTL: cfg.AllowTTL, denyTTL: cfg.DenyTTL,
		answers: cache.NewLRUExpireCache(keptAnswers),
	}
}

// Authorize implements authorizer.Authorizer. An error comes with
// DecisionNoOpinion; it is not kept.
func (r *reviewer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	question := questionOf(a)
	key, err := json.Marshal(question)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("write the SubjectAccessReview of %s: %w", question.User, err)
	}
	if kept, ok := r.answers.Get(string(key)); ok {
		if status, ok := kept.(authorizationv1.SubjectAccessReviewStatus); ok {
			return decide(status)
		}
	}
	status, err := r.ask(ctx, question)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("ask the apiserver whether %s may %s (SubjectAccessReview): %w", question.User, a.GetVerb(), err)
	}
	if len(key) <= longestQuestion {
		ttl := r.denyTTL
		if status.Allowed {
			ttl = r.allowTTL
		}
		r.answers.Add(string(key), status, ttl)
	}
	return decide(status)
}

// ask tries again what failed on the way or was refused for the apiserver's load.
func (r *reviewer) ask(ctx context.Context, question authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	var status authorizationv1.SubjectAccessReviewStatus
	err := webhook.WithExponentialBackoff(ctx, r.backoff, func() error {
		answer, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: question}, metav1.CreateOptions{})
		if err == nil {
			status = answer.Status
		}
		return err
	}, webhook.DefaultShouldRetry)
	return status, err
}

// decide reads an answer; one that both allows and denies is a refusal.
func decide(s authorizationv1.SubjectAccessReviewStatus) (authorizer.Decision, string, error) {
	switch {
	case s.Denied && s.Allowed:
		return authorizer.DecisionDeny, s.Reason, fmt.Errorf("the apiserver's SubjectAccessReview both allows and denies (%s)", s.Reason)
	case s.Denied:
		return authorizer.DecisionDeny, s.Reason, nil
	case s.Allowed:
		return authorizer.DecisionAllow, s.Reason, nil
	default:
		return authorizer.DecisionNoOpinion, s.Reason, nil
	}
}

func questionOf(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var question authorizationv1.SubjectAccessReviewSpec
	if u := a.GetUser(); u != nil {
		question.User, question.UID, question.Groups, question.Extra = u.GetName(), u.GetUID(), u.GetGroups(), extraOf(u)
	}
	if !a.IsResourceRequest() {
		question.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return question
	}
	question.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
	}
	return question
}

func extraOf(u user.Info) map[string]authorizationv1.ExtraValue {
	if len(u.GetExtra()) == 0 {
		return nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for name, values := range u.GetExtra() {
		extra[name] = values
	}
	return extra
}
