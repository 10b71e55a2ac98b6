package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

func TestTheLastTimeoutCountsAndOneThatCannotBeReadIs404(t *testing.T) {
	for query, want := range map[string]string{
		"": "0s", "?timeout=0": "0s", "?timeout=5": "5s", "?timeout=5&timeout=9": "9s", "?timeout=86400": "24h0m0s",
		"?timeout=": "404", "?timeout=x": "404", "?timeout=-1": "404", "?timeout=1.5": "404", "?timeout=86401": "404",
		"?timeout=99999999999999999999": "404", "?timeout=5&timeout=x": "404",
	} {
		w := httptest.NewRecorder()
		Handler(func(ctx context.Context, _, _, _ string, timeout time.Duration) (string, error) {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) < timeout {
				return "", errors.New("the call ends before the runtime's timeout")
			}
			return timeout.String(), nil
		}).ServeHTTP(w, httptest.NewRequest("POST", "/checkpoint/ns/p/c"+query, nil))
		if want == "404" && w.Code != 404 || want != "404" && (w.Code != 200 || w.Body.String() != fmt.Sprintf(`{"items":[%q]}`, want)) {
			t.Errorf("%q: %d %q, want %s", query, w.Code, w.Body, want)
		}
	}
}

func TestACheckpointThatFailsIs500WithTheRuntimesWords(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(func(context.Context, string, string, string, time.Duration) (string, error) {
		return "", fmt.Errorf("%w: checkpointing of ns/p/c failed (criu is missing)", rpcerr.ErrInternal)
	}).ServeHTTP(w, httptest.NewRequest("POST", "/checkpoint/ns/p/c", nil))
	if w.Code != 500 || w.Body.String() != "checkpointing of ns/p/c failed (criu is missing)" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func FuzzATimeoutIsBoundedOrRefused(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "-1", "86400", "9223372036854775807", "0x10", "1e3", " 1", "+5", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		timeout, err := timeoutOf([]string{"1", text})
		if err == nil && (timeout < 0 || timeout > longest || timeout%time.Second != 0) {
			t.Fatalf("%q is %s", text, timeout)
		}
		if err != nil && !strings.Contains(err.Error(), "timeout") {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
