package gateway

import (
	"net/http"
	"testing"
	"time"
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
	for deadline := time.Now().Add(30 * time.Second); h.reviewed() < 2*asked; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("asked %d times, want %d", h.reviewed(), 2*asked)
		}
		in()
	}
}
