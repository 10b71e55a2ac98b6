package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Reviewer asks the apiserver. The gateway has no credential for that: another
// process asks. Where the apiserver answers with an error, refusal says which,
// with its HTTP code; err is that it was not reached.
type Reviewer interface {
	ReviewToken(ctx context.Context, question *authnv1.TokenReview) (answer *authnv1.TokenReview, refusal *metav1.Status, err error)
	ReviewAccess(ctx context.Context, question *authzv1.SubjectAccessReview) (answer *authzv1.SubjectAccessReview, refusal *metav1.Status, err error)
}

// reviewsHost stands for the process that asks, in the metrics of requests.
const reviewsHost = "http://nodestatus"

// clientOf is a Kubernetes client for the apiserver library's delegating parts
// whose requests, reviews only, reach a Reviewer.
func clientOf(r Reviewer) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: reviewsHost, Transport: reviews{r}, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		// The process that asks has no limit either: answers are kept here.
		QPS: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("building the client for reviews: %w", err)
	}
	return client, nil
}

// reviews is the transport of that client.
type reviews struct{ to Reviewer }

// RoundTrip implements http.RoundTripper.
func (t reviews) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		return ask(r, &authnv1.TokenReview{}, t.to.ReviewToken)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		return ask(r, &authzv1.SubjectAccessReview{}, t.to.ReviewAccess)
	}
	return nil, fmt.Errorf("%s %s is no review: the gateway asks for nothing else", r.Method, r.URL.Path)
}

func ask[T runtime.Object](r *http.Request, question T, put func(context.Context, T) (T, *metav1.Status, error)) (*http.Response, error) {
	if err := json.NewDecoder(r.Body).Decode(question); err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	answer, refusal, err := put(r.Context(), question)
	if err != nil {
		return nil, err
	}
	res := &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Request: r}
	body := any(answer)
	if refusal == nil {
		answer.GetObjectKind().SetGroupVersionKind(question.GetObjectKind().GroupVersionKind())
	} else {
		refusal.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		// A code that is none may not be taken for success.
		if res.StatusCode, body = int(refusal.Code), refusal; res.StatusCode < http.StatusBadRequest {
			res.StatusCode = http.StatusInternalServerError
		}
		if refusal.Details != nil && refusal.Details.RetryAfterSeconds > 0 {
			res.Header.Set("Retry-After", strconv.Itoa(int(refusal.Details.RetryAfterSeconds)))
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("passing the answer on: %w", err)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return res, nil
}
