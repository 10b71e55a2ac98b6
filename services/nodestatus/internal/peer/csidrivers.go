package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/nodestatus/internal/csinode"
)

// CSIDrivers follows podsync's CSI drivers. That podsync is away is told elsewhere, and
// an older one has none.
type CSIDrivers struct {
	Podsync grpc.ClientConnInterface
	// Tell takes drivers that are new or changed; whole: all that are known of.
	Tell func(drivers []csinode.Driver, whole bool)
}

// Run follows them until ctx is done.
func (c CSIDrivers) Run(ctx context.Context) error {
	client := podsyncv1.NewPodSyncServiceClient(c.Podsync)
	return watch.Follow(ctx, watch.Follower[*podsyncv1.WatchCSIDriversResponse]{
		Name:    "podsync's CSI drivers",
		Backoff: backoff.Config{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2},
		Connect: func(ctx context.Context) (func() (*podsyncv1.WatchCSIDriversResponse, error), error) {
			stream, err := client.WatchCSIDrivers(ctx, &podsyncv1.WatchCSIDriversRequest{})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Header: func(f *podsyncv1.WatchCSIDriversResponse) watch.Header {
			return watch.Header{Epoch: f.GetEpoch(), Revision: f.GetRevision(), Snapshot: f.GetSnapshot()}
		},
		Handle: func(_ context.Context, f *podsyncv1.WatchCSIDriversResponse) error {
			c.Tell(driversOf(f), f.GetSnapshot())
			return nil
		},
	})
}

func driversOf(f *podsyncv1.WatchCSIDriversResponse) (out []csinode.Driver) {
	for _, d := range f.GetDrivers() {
		out = append(out, csinode.Driver{
			Name: d.GetName(), NodeID: d.GetNodeId(), Gone: d.GetGone(), Topology: d.GetTopology(), MaxVolumes: d.GetMaxVolumes(),
		})
	}
	return out
}
