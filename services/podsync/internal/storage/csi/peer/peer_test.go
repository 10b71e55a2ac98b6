package peer

import (
	"context"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

// serving is a driver at its socket.
func serving(t *testing.T, cfg fakecsi.Config) (*fakecsi.Driver, Conn) {
	t.Helper()
	dir := t.TempDir()
	cfg.Name, cfg.NodeID = "csi.test", "its-name"
	driver := fakecsi.New(cfg)
	stop, err := driver.Serve(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err := Dial(filepath.Join(dir, "csi.test.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return driver, conn
}

func TestEachCallIsToldOfOnceItHasEnded(t *testing.T) {
	_, conn := serving(t, fakecsi.Config{Fault: func(_ context.Context, at string) error {
		if at == "NodeGetCapabilities" {
			return status.Error(codes.ResourceExhausted, "full")
		}
		return nil
	}})
	var calls []Call
	d := New(conn, func(_ context.Context, c Call) { calls = append(calls, c) })
	defer d.Close()
	if info, err := d.Info(t.Context()); err != nil || info.NodeID != "its-name" {
		t.Errorf("it says %+v, %v", info, err)
	}
	if _, err := d.Abilities(t.Context()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	if len(calls) != 2 || !calls[0].Info || calls[0].Code != "OK" || calls[1].Info || !calls[1].Exhausted || calls[1].Method != spec.Node_NodeGetCapabilities_FullMethodName {
		t.Errorf("told of %+v", calls)
	}
}

func TestEachAbilityIsReadByItsName(t *testing.T) {
	for can, want := range map[spec.NodeServiceCapability_RPC_Type]Abilities{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:     {StageUnstage: true},
		spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:       {MountGroup: true},
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME:            {Expand: true},
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS:         {Stats: true},
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: {SingleNodeMultiWriter: true},
		canSayCondition: {Condition: true},
	} {
		_, conn := serving(t, fakecsi.Config{Can: []spec.NodeServiceCapability_RPC_Type{can}})
		d := New(conn, func(context.Context, Call) {})
		if got, err := d.Abilities(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", can, got, err)
		}
		d.Close()
	}
}
