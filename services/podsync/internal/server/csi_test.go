package server

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
)

type csiStore struct {
	*watch.Store[string, csi.State]
}

func TestCSIDriversComeAsASnapshotAndThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		store := csiStore{watch.NewStore[string, csi.State](7, nil)}
		store.Set("a", csi.State{Info: csi.Info{Name: "a", NodeID: "n", MaxVolumes: 3, Topology: map[string]string{"zone": "z"}}})
		r.server.deps.CSIDrivers = store
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.client.WatchCSIDrivers(ctx, &podsyncv1.WatchCSIDriversRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || !first.GetSnapshot() || first.GetEpoch() != 7 || len(first.GetDrivers()) != 1 {
			t.Fatalf("frame %v, error %v", first, err)
		}
		if d := first.GetDrivers()[0]; d.GetName() != "a" || d.GetNodeId() != "n" || d.GetMaxVolumes() != 3 || d.GetTopology()["zone"] != "z" || d.GetGone() {
			t.Errorf("the driver is %v", d)
		}
		store.Set("a", csi.State{Info: csi.Info{Name: "a"}, Gone: true})
		next, err := stream.Recv()
		if err != nil || next.GetSnapshot() || len(next.GetDrivers()) != 1 || !next.GetDrivers()[0].GetGone() {
			t.Errorf("frame %v, error %v", next, err)
		}
	})
}

type usedVolumes struct {
	*watch.Store[v1.UniqueVolumeName, struct{}]
	known chan struct{}
}

func (u usedVolumes) InUse(ctx context.Context) (*watch.Subscription[v1.UniqueVolumeName, struct{}], error) {
	<-u.known
	return u.Subscribe(ctx), nil
}

func TestVolumesInUseComeOnceAllAreKnownAndThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		used := usedVolumes{watch.NewStore[v1.UniqueVolumeName, struct{}](7, nil), make(chan struct{})}
		r.server.deps.VolumesInUse = used
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.client.WatchVolumesInUse(ctx, &podsyncv1.WatchVolumesInUseRequest{})
		if err != nil {
			t.Fatal(err)
		}
		used.Set("a", struct{}{})
		close(used.known)
		first, err := stream.Recv()
		if err != nil || !first.GetSnapshot() || first.GetEpoch() != 7 || !slices.Equal(first.GetNames(), []string{"a"}) {
			t.Fatalf("frame %v, error %v", first, err)
		}
		used.Delete("a")
		next, err := stream.Recv()
		if err != nil || next.GetSnapshot() || !slices.Equal(next.GetRemovedNames(), []string{"a"}) {
			t.Errorf("frame %v, error %v", next, err)
		}
	})
}

func TestWithoutCSIDriversTheyAreNotServed(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		stream, err := r.client.WatchCSIDrivers(t.Context(), &podsyncv1.WatchCSIDriversRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
		used, err := r.client.WatchVolumesInUse(t.Context(), &podsyncv1.WatchVolumesInUseRequest{})
		if err == nil {
			_, err = used.Recv()
		}
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	})
}
