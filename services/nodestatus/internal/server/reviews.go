package server

import (
	"context"
	"fmt"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// ReviewToken implements NodeStatusService.
func (s *Server) ReviewToken(ctx context.Context, req *nodestatusv1.ReviewTokenRequest) (*nodestatusv1.ReviewTokenResponse, error) {
	var question authnv1.TokenReview
	if err := question.Unmarshal(req.GetTokenReview()); err != nil {
		return nil, fmt.Errorf("%w: token_review is no TokenReview: %w", rpcerr.ErrInvalid, err)
	}
	answer, refusal, err := s.reviews.Token(ctx, question.Spec)
	if err != nil {
		return nil, err
	}
	out := &nodestatusv1.ReviewTokenResponse{}
	if refusal != nil {
		out.Refusal, err = encode(refusal)
	} else {
		out.TokenReview, err = encode(answer)
	}
	return out, err
}

// ReviewAccess implements NodeStatusService.
func (s *Server) ReviewAccess(ctx context.Context, req *nodestatusv1.ReviewAccessRequest) (*nodestatusv1.ReviewAccessResponse, error) {
	var question authzv1.SubjectAccessReview
	if err := question.Unmarshal(req.GetSubjectAccessReview()); err != nil {
		return nil, fmt.Errorf("%w: subject_access_review is no SubjectAccessReview: %w", rpcerr.ErrInvalid, err)
	}
	answer, refusal, err := s.reviews.Access(ctx, question.Spec)
	if err != nil {
		return nil, err
	}
	out := &nodestatusv1.ReviewAccessResponse{}
	if refusal != nil {
		out.Refusal, err = encode(refusal)
	} else {
		out.SubjectAccessReview, err = encode(answer)
	}
	return out, err
}

// encodable is an object with Kubernetes' protobuf encoding.
type encodable interface{ Marshal() ([]byte, error) }

func encode(o encodable) ([]byte, error) {
	data, err := o.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", o, err)
	}
	return data, nil
}
