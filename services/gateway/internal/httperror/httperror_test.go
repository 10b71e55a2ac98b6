package httperror

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/polylet/polylet/internal/rpcerr"
)

func TestErrorsBecomeStatusesAndTheKubeletsTexts(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{
		{fmt.Errorf("%w: pod %q does not exist", rpcerr.ErrNotFound, "p"), 404, `pod "p" does not exist`},
		{fmt.Errorf("port 0 is bad: %w", rpcerr.ErrInvalid), 400, "port 0 is bad"},
		{fmt.Errorf("%w: too many", rpcerr.ErrExhausted), 429, "too many"},
		{fmt.Errorf("%w: slow", rpcerr.ErrTimeout), 504, "timed out: slow"},
		{fmt.Errorf("%w: no", rpcerr.ErrForbidden), 500, "forbidden: no"},
		{fmt.Errorf("%w: container is not running", rpcerr.ErrPrecondition), 500, "container is not running"},
		{fmt.Errorf("%w: x", rpcerr.ErrUnimplemented), 501, "not implemented: x"},
		{errors.New("boom"), 500, "boom"},
	} {
		// As it comes over the wire.
		err := rpcerr.FromStatus(rpcerr.ToStatus(c.err).Err())
		w := httptest.NewRecorder()
		Error(w, "podsync", err)
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%v: %d %q, want %d %q", c.err, w.Code, w.Body, c.status, c.body)
		}
	}
}
