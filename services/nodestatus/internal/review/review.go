// Package review asks the apiserver, for the gateway, who somebody is and what
// they may do with this Node. It owns these two questions and their deadline; it
// must never keep an answer or decide anything.
package review

import (
	"context"
	"errors"
	"fmt"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/rpcerr"
)

// timeout bounds a question, whatever its asker's timeout.
const timeout = 30 * time.Second

// atOnce is how many questions are under way at most: half as many again as the
// gateway asks. Whoever took it over must not flood the apiserver as this node,
// whose heartbeats share what the apiserver has for it.
const atOnce = 192

// Asker asks the apiserver. A nil Asker has none to ask.
type Asker struct {
	places       chan struct{}
	nodeName     string
	authn, authz rest.Interface
}

// New returns an Asker with the node's client; nil for a client that is nil.
func New(nodeName string, client kubernetes.Interface) *Asker {
	if client == nil {
		return nil
	}
	return &Asker{places: make(chan struct{}, atOnce), nodeName: nodeName, authn: client.AuthenticationV1().RESTClient(), authz: client.AuthorizationV1().RESTClient()}
}

// Token asks whom the token in spec belongs to. refusal is set instead of the
// review when the apiserver answered with an error.
func (a *Asker) Token(ctx context.Context, spec authnv1.TokenReviewSpec) (review *authnv1.TokenReview, refusal *metav1.Status, err error) {
	if a == nil {
		return nil, nil, errStandalone
	}
	review = &authnv1.TokenReview{}
	refusal, err = a.ask(ctx, a.authn, "tokenreviews", &authnv1.TokenReview{Spec: spec}, review)
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	return review, nil, nil
}

// Access asks whether the subject of spec may do what stands there, which has
// to be about this Node: whoever took over the gateway learns nothing else from
// here. refusal is as Token's.
func (a *Asker) Access(ctx context.Context, spec authzv1.SubjectAccessReviewSpec) (review *authzv1.SubjectAccessReview, refusal *metav1.Status, err error) {
	if a == nil {
		return nil, nil, errStandalone
	}
	what := spec.ResourceAttributes
	if what == nil || spec.NonResourceAttributes != nil || what.Group != "" || what.Resource != "nodes" || what.Name != a.nodeName || what.Namespace != "" {
		return nil, nil, fmt.Errorf("%w: the review is not about the resource nodes and the Node %s", rpcerr.ErrInvalid, a.nodeName)
	}
	review = &authzv1.SubjectAccessReview{}
	refusal, err = a.ask(ctx, a.authz, "subjectaccessreviews", &authzv1.SubjectAccessReview{Spec: spec}, review)
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	return review, nil, nil
}

var errStandalone = fmt.Errorf("%w: the node runs without an apiserver, so nobody can be asked who somebody is", rpcerr.ErrPrecondition)

// ask creates question and reads the answer. The gateway tries again what may
// be tried again, so there is one attempt here, and another only where a
// connection that had long been idle turned out to be dead.
func (a *Asker) ask(ctx context.Context, client rest.Interface, resource string, question, answer runtime.Object) (*metav1.Status, error) {
	select {
	case a.places <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d reviews are under way; try again", rpcerr.ErrExhausted, atOnce)
	}
	defer func() { <-a.places }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	post := func() error {
		return client.Post().Resource(resource).Body(question).MaxRetries(0).Do(ctx).Into(answer)
	}
	err := post()
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) {
		err = post()
	}
	var answered apierrors.APIStatus
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &answered):
		status := answered.Status()
		return &status, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: create %s: %w", rpcerr.ErrTimeout, resource, err)
	}
	return nil, fmt.Errorf("%w: create %s at the apiserver: %w", rpcerr.ErrUnavailable, resource, err)
}
