package status

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Trouble is why the apiserver does not have the newest status of a pod, or not
// all of it.
type Trouble struct {
	// Err of the last request; nil when it went well, and only parts are left out.
	Err error
	// Refused are the parts that the apiserver refuses for good.
	Refused []Refusal
	// Away is true when the apiserver did not answer, false when it refused.
	Away bool
	// Since is when the first request in a row failed, Retry when the next goes out.
	Since, Retry time.Time
}

// Trouble returns why the pod's status is not written; false when it is, or when
// no request has failed yet.
func (w *Writer) Trouble(uid types.UID) (Trouble, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[uid]
	if e == nil {
		return Trouble{}, false
	}
	e.owedLocked() // which ends what is refused no more
	var t Trouble
	for _, r := range e.refused {
		t.Refused = append(t.Refused, r.Refusal)
	}
	if e.failure != nil {
		t.Err, t.Away, t.Since, t.Retry = e.failure, isAway(e.failure), e.failing, e.retryAt
	}
	return t, t.Err != nil || len(t.Refused) > 0
}

// noteFailure keeps why a request failed, and says whether that is news.
func (w *Writer) noteFailure(ctx context.Context, e *entry, err error) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || isGone(err) || ctx.Err() != nil {
		e.failure, e.failing, e.retryAt = nil, time.Time{}, time.Time{}
		return false
	}
	news = e.failure == nil || e.failure.Error() != err.Error()
	if e.failing.IsZero() {
		e.failing = time.Now()
	}
	e.failure = err
	return news
}
