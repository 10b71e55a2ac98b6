package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/nodestatus/internal/oomkill"
)

// Kills follows the processes that the kernel kills, as stats sees them. That stats is
// away is told elsewhere, and an older one knows of none.
type Kills struct {
	Stats grpc.ClientConnInterface
	// Tell takes kills, oldest first, again with each new stream.
	Tell func(ctx context.Context, kills []oomkill.Kill)
}

// Run follows them until ctx is done.
func (k Kills) Run(ctx context.Context) error {
	client := statsv1.NewStatsServiceClient(k.Stats)
	return watch.Follow(ctx, watch.Follower[*statsv1.WatchOOMKillsResponse]{
		Name:    "the kernel's kills, of stats",
		Backoff: backoff.Config{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2},
		Connect: func(ctx context.Context) (func() (*statsv1.WatchOOMKillsResponse, error), error) {
			stream, err := client.WatchOOMKills(ctx, &statsv1.WatchOOMKillsRequest{})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Header: func(f *statsv1.WatchOOMKillsResponse) watch.Header {
			return watch.Header{Epoch: f.GetEpoch(), Revision: f.GetRevision(), Snapshot: f.GetSnapshot()}
		},
		Handle: func(ctx context.Context, f *statsv1.WatchOOMKillsResponse) error {
			k.Tell(ctx, killsOf(f))
			return nil
		},
	})
}

func killsOf(f *statsv1.WatchOOMKillsResponse) (out []oomkill.Kill) {
	for _, x := range f.GetKills() {
		out = append(out, oomkill.Kill{
			Sequence: x.GetSequence(), Time: x.GetTime().AsTime(), Process: x.GetProcess(), PID: int(x.GetPid()), System: x.GetSystem(),
			Cgroup: x.GetCgroup(), Limit: x.GetLimitCgroup(),
			Pod: types.NamespacedName{Namespace: x.GetPodNamespace(), Name: x.GetPodName()}, PodUID: types.UID(x.GetPodUid()), Container: x.GetContainer(),
		})
	}
	return out
}
