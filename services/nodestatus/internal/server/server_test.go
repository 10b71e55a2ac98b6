package server

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/event"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsNotThereYetIsToldApartFromWhatNeverWillBe(t *testing.T) {
	s := New(Deps{Keeper: status.New(status.Config{}, status.Deps{})})
	if _, err := s.GetNode(t.Context(), &nodestatusv1.GetNodeRequest{}); !errors.Is(err, rpcerr.ErrUnavailable) {
		t.Errorf("a Node that is not made yet: %v", err)
	}
	if _, err := s.GetLease(t.Context(), &nodestatusv1.GetLeaseRequest{}); !errors.Is(err, rpcerr.ErrPrecondition) {
		t.Errorf("a lease without an apiserver: %v", err)
	}
}

func TestRecentEventsAreListedAsTheyWereSent(t *testing.T) {
	events := event.New("n1", nil)
	events.Send(t.Context(), node.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
	res, err := New(Deps{Events: events}).ListRecentEvents(t.Context(), &nodestatusv1.ListRecentEventsRequest{})
	if err != nil || len(res.GetEvents()) != 1 {
		t.Fatalf("%v %v", res, err)
	}
	if e := res.GetEvents()[0]; e.GetReason() != "Starting" || e.GetMessage() != "Starting kubelet." || e.GetCount() != 1 || !e.GetTime().IsValid() {
		t.Errorf("%v", e)
	}
}
