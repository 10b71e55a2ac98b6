package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// reviewed says how many reviews the apiserver was asked for.
func (h *house) reviewed() (n int) {
	for _, r := range h.apiserver.Requests() {
		if r.Resource == "tokenreviews" || r.Resource == "subjectaccessreviews" {
			n++
		}
	}
	return n
}

// nodestatus ends when another cluster has answered, and begins anew with that one.
func TestWhatNodestatusWasToldIsKeptWhileItIsAwayAndAskedAgainOfItsNextLife(t *testing.T) {
	h := newHouse(t)
	url, client := "https://"+h.start(t, nil).Addresses()["secure"]+"/pods", httpClient(t)
	in := func() {
		t.Helper()
		if got := ask(t, client, http.MethodGet, url, "admin-token"); got.status != http.StatusOK {
			t.Fatalf("answered %d: %s", got.status, got.body)
		}
	}
	in()
	asked := h.reviewed()
	in()
	h.nodestatus.Down()
	in()
	if got := h.reviewed(); got != asked {
		t.Errorf("asked %d times, want %d", got, asked)
	}
	h.nodestatus.Up()
	eventually.Nil(t, func() error {
		if got := h.reviewed(); got < 2*asked {
			in()
			return fmt.Errorf("asked %d times, want %d", got, 2*asked)
		}
		return nil
	})
}
