package access

import (
	"context"
	"errors"

	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// tokenReviews asks the apiserver whose a bearer token is. It keeps nothing.
type tokenReviews struct {
	reviewer Reviewer
	count    *counts
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	answer, err := put(ctx, t.count, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}, t.reviewer.ReviewToken)
	if err != nil {
		return nil, false, err
	}
	said := &answer.Status
	switch {
	case said.Authenticated && said.User.Username == "":
		return nil, false, errors.New("the apiserver's answer to a TokenReview says that the token is good, and not whose it is")
	case said.Authenticated:
		who := &user.DefaultInfo{Name: said.User.Username, UID: said.User.UID, Groups: said.User.Groups}
		for key, values := range said.User.Extra {
			if who.Extra == nil {
				who.Extra = make(map[string][]string, len(said.User.Extra))
			}
			who.Extra[key] = values
		}
		return &authenticator.Response{User: who}, true, nil
	case said.Error != "":
		return nil, false, errors.New(said.Error)
	}
	return nil, false, nil
}
