package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Reviewer asks the apiserver. The gateway has no credential for that: another
// process asks. Where the apiserver answers with an error, refusal says which,
// with its HTTP code; err is that it was not reached.
type Reviewer interface {
	ReviewToken(ctx context.Context, question *authnv1.TokenReview) (answer *authnv1.TokenReview, refusal *metav1.Status, err error)
	ReviewAccess(ctx context.Context, question *authzv1.SubjectAccessReview) (answer *authzv1.SubjectAccessReview, refusal *metav1.Status, err error)
}

// tries is how often one question is put to an apiserver that is busy or ails,
// firstPause how long it is left alone at first, growth by how much longer each
// time: all of them within 5 s, as every component of Kubernetes asks.
const (
	tries      = 5
	firstPause = 500 * time.Millisecond
	growth     = 1.5
	spread     = 0.2
)

var errNoTime = errors.New("the apiserver refused a review, and there is no time to ask it again")

// put puts a question until it is answered, and counts each try. A refusal that
// passes, or that says after how long to come again, is followed by the next one.
func put[Q, A any](ctx context.Context, count *counts, question Q, review func(context.Context, Q) (*A, *metav1.Status, error)) (*A, error) {
	pause := wait.Backoff{Duration: firstPause, Factor: growth, Jitter: spread, Steps: tries}
	for left := tries - 1; ; left-- {
		began := time.Now()
		answer, refusal, err := review(ctx, question)
		if !errors.Is(err, errTooMany) { // it was not put
			count.add(refusal, err, time.Since(began))
		}
		switch {
		case err != nil:
			return nil, err
		case refusal == nil && answer == nil:
			return nil, errors.New("the apiserver's answer to a review is empty")
		case refusal == nil:
			return answer, nil
		}
		err = &apierrors.StatusError{ErrStatus: *refusal}
		least, passes := passing(err)
		if !passes || left == 0 {
			return nil, fmt.Errorf("the apiserver refuses a review: %w", err)
		}
		rest := max(pause.Step(), least)
		by, bounded := ctx.Deadline()
		if bounded && time.Until(by) <= rest { // whoever waits in vain has a place that others want
			return nil, fmt.Errorf("%w: %w", errNoTime, err)
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", errNoTime, err)
		case <-timer.C:
		}
	}
}

// passing says whether a refusal passes, and what it says for how long it does not.
func passing(err error) (least time.Duration, passes bool) {
	seconds, again := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second,
		again || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}

// codeOf is what an answer's HTTP code was. An answer's body says any number, and each would
// be a series of its own.
func codeOf(refusal *metav1.Status, err error) string {
	switch {
	case err == nil && refusal == nil:
		return strconv.Itoa(http.StatusCreated)
	case err != nil, refusal.Code < 100, refusal.Code > 599:
		return "<error>"
	}
	return strconv.Itoa(int(refusal.Code))
}
