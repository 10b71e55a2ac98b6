package peer

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// away is a connection that cannot be made.
type away struct{ grpc.ClientConnInterface }

func (away) GetState() connectivity.State                                { return connectivity.TransientFailure }
func (away) WaitForStateChange(context.Context, connectivity.State) bool { return false }
func (away) Connect()                                                    {}

// restarted is a connection that is made, lost and made again.
type restarted struct {
	grpc.ClientConnInterface
	states []connectivity.State
}

func (r *restarted) GetState() connectivity.State { return r.states[0] }

func (r *restarted) WaitForStateChange(context.Context, connectivity.State) bool {
	r.states = r.states[1:]
	return len(r.states) > 0
}

func (*restarted) Connect() {}

type said map[string]string

func (s said) Set(name string, ready bool, message string) {
	if !ready {
		s[name] = message
	}
}

func TestWhatClientsGetWhileAProcessIsAwayIsSaid(t *testing.T) {
	said := said{}
	for _, name := range []string{"stats", "nodestatus"} {
		Watch(t.Context(), name, away{}, said, func() { t.Error("it has come") })
	}
	if text := said["stats"]; !strings.Contains(text, "stats's socket cannot be reached") || !strings.Contains(text, "503") {
		t.Errorf("stats: %s", text)
	}
	// Who calls, and what he may, is asked through nodestatus.
	if text := said["nodestatus"]; !strings.Contains(text, "401") || !strings.Contains(text, "500") {
		t.Errorf("nodestatus: %s", text)
	}
}

func TestEachConnectionIsTold(t *testing.T) {
	lives := 0
	Watch(t.Context(), "nodestatus", &restarted{states: []connectivity.State{
		connectivity.Connecting, connectivity.Ready, connectivity.Idle, connectivity.TransientFailure, connectivity.Ready, connectivity.Ready,
	}}, said{}, func() { lives++ })
	if lives != 3 {
		t.Errorf("%d are told, want 3", lives)
	}
}
