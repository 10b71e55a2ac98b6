package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// mostKept bounds the answers that are kept; the oldest gives way.
const mostKept = 8192

// accessReviews asks the apiserver whether somebody may have something, and keeps
// its answers for their time. An error is never kept and allows nobody.
type accessReviews struct {
	reviewer          Reviewer
	count             *counts
	allowTTL, denyTTL time.Duration
	answers           *cache.LRUExpireCache // answered by keptBy
	// trust is under which an answer counts.
	trust trust
}

// keptBy is what an answer is kept by: what is asked, by its hash, and of which cluster.
type keptBy struct {
	text [sha256.Size]byte
	of   cluster
}

// answered is what is kept of an answer.
type answered struct {
	allowed, denied bool
	reason          string
}

// Authorize implements authorizer.Authorizer.
func (a *accessReviews) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	review := &authzv1.SubjectAccessReview{Spec: questionOf(attributes)}
	text, err := review.Spec.Marshal()
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("encoding what a SubjectAccessReview asks: %w", err)
	}
	key := keptBy{sha256.Sum256(text), a.trust()}
	if kept, ok := a.answers.Get(key); ok {
		if said, ok := kept.(answered); ok {
			return said.decide()
		}
	}
	answer, err := put(ctx, a.count, review, a.reviewer.ReviewAccess)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	said := answered{allowed: answer.Status.Allowed, denied: answer.Status.Denied, reason: answer.Status.Reason}
	keep := a.denyTTL
	if said.allowed && !said.denied {
		keep = a.allowTTL
	}
	a.answers.Add(key, said, keep)
	return said.decide()
}

// decide: who is denied is denied, whatever else is said.
func (s answered) decide() (authorizer.Decision, string, error) {
	switch {
	case s.denied && s.allowed:
		return authorizer.DecisionDeny, s.reason, errors.New("the apiserver's answer to a SubjectAccessReview both allows and denies")
	case s.denied:
		return authorizer.DecisionDeny, s.reason, nil
	case s.allowed:
		return authorizer.DecisionAllow, s.reason, nil
	}
	return authorizer.DecisionNoOpinion, s.reason, nil
}

// questionOf says who wants what. Where no user is known, none is named: an
// apiserver allows that one nothing.
func questionOf(attributes authorizer.Attributes) authzv1.SubjectAccessReviewSpec {
	spec := subjectOf(attributes.GetUser())
	if !attributes.IsResourceRequest() {
		spec.NonResourceAttributes = &authzv1.NonResourceAttributes{Path: attributes.GetPath(), Verb: attributes.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authzv1.ResourceAttributes{
		Namespace: attributes.GetNamespace(), Verb: attributes.GetVerb(),
		Group: attributes.GetAPIGroup(), Version: attributes.GetAPIVersion(),
		Resource: attributes.GetResource(), Subresource: attributes.GetSubresource(), Name: attributes.GetName(),
	}
	return spec
}

func subjectOf(who user.Info) authzv1.SubjectAccessReviewSpec {
	if who == nil {
		return authzv1.SubjectAccessReviewSpec{}
	}
	spec := authzv1.SubjectAccessReviewSpec{User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authzv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	return spec
}
