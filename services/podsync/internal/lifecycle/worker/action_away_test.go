package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// Else a pod whose driver is away waits for the runtime, without a back-off, and so do its other
// volumes.
func TestADriverThatIsAwayIsNotTakenForTheRuntime(t *testing.T) {
	driver := fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed: %w", status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /csi/d.sock: connect: connection refused"`))
	out := (&worker{}).planned(outcome{
		action: podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}, Volumes: []string{"v", "cm"}},
		err:    podstate.VolumeErrors{{Volume: "v", Err: driver}, {Volume: "cm", Err: errors.New(`configmap "x" not found`)}},
	}, time.Now())
	if len(out.Volumes) != 2 || out.Failure.Away {
		t.Errorf("%+v, %+v", out.Failure, out.Volumes)
	}
	for name, f := range out.Volumes {
		if f.Away {
			t.Errorf("volume %s: the runtime is said to be away: %s", name, f.Message)
		}
	}
}

type lostConn struct{ grpc.ClientConnInterface }

func (lostConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unavailable, "connection error: refused")
}

func TestAVolumeThatWaitsForTheRuntimeHasNoOtherWait(t *testing.T) {
	_, away := cri.New(cri.Config{}, lostConn{}, lostConn{}, nil).Image(t.Context(), "x")
	out := (&worker{}).planned(outcome{
		action: podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}, Volumes: []string{"image", "cm"}},
		err:    podstate.VolumeErrors{{Volume: "image", Err: away}, {Volume: "cm", Err: errors.New("no such ConfigMap")}},
	}, time.Now())
	if !out.Volumes["image"].Away || out.Volumes["cm"].Away {
		t.Errorf("%+v", out.Volumes)
	}
}
