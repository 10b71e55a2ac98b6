package peer

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// VolumesInUse follows the volumes that podsync uses. Before its first word, and while it
// is away, the Node says what it said: nobody may detach a volume because a process was
// restarted. An older podsync uses none.
type VolumesInUse struct {
	Podsync grpc.ClientConnInterface
	Store   *Store
	// Begins is called before each connection: the one before that has ended, and podsync
	// may have. nil does nothing.
	Begins func()
}

// Run follows them until ctx is done.
func (v VolumesInUse) Run(ctx context.Context) error {
	client := podsyncv1.NewPodSyncServiceClient(v.Podsync)
	names := map[string]bool{}
	return watch.Follow(ctx, watch.Follower[*podsyncv1.WatchVolumesInUseResponse]{
		Name:    "podsync's volumes in use",
		Backoff: backoff.Config{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2},
		Connect: func(ctx context.Context) (func() (*podsyncv1.WatchVolumesInUseResponse, error), error) {
			if v.Begins != nil {
				v.Begins()
			}
			stream, err := client.WatchVolumesInUse(ctx, &podsyncv1.WatchVolumesInUseRequest{})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Header: func(f *podsyncv1.WatchVolumesInUseResponse) watch.Header {
			return watch.Header{Epoch: f.GetEpoch(), Revision: f.GetRevision(), Snapshot: f.GetSnapshot()}
		},
		Handle: func(_ context.Context, f *podsyncv1.WatchVolumesInUseResponse) error {
			follow(names, f)
			v.Store.setVolumesInUse(slices.AppendSeq([]string{}, maps.Keys(names)))
			return nil
		},
	})
}

// follow takes a frame over.
func follow(names map[string]bool, f *podsyncv1.WatchVolumesInUseResponse) {
	if f.GetSnapshot() {
		clear(names)
	}
	for _, name := range f.GetRemovedNames() {
		delete(names, name)
	}
	for _, name := range f.GetNames() {
		names[name] = true
	}
}

func (s *Store) setVolumesInUse(names []string) {
	slices.Sort(names)
	s.update(func(f *node.Facts) bool {
		changed := f.VolumesInUse == nil || !slices.Equal(f.VolumesInUse, names)
		f.VolumesInUse = names
		return changed
	})
}
