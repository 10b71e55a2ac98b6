package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// Pods is the client of podsync's pods for all who end them: it asks for them, follows
// them and has them stopped. Errors wrap a class of rpcerr. Safe for concurrent use.
type Pods struct {
	client podsyncv1.PodSyncServiceClient
	api    podsapi.PodsClient

	mu sync.Mutex
	// last is what podsync answered last, in this epoch and revision.
	epoch, revision uint64
	last            evict.Pods
}

// NewPods returns a client.
func NewPods(conn grpc.ClientConnInterface) *Pods {
	return &Pods{client: podsyncv1.NewPodSyncServiceClient(conn), api: podsapi.NewPodsClient(conn)}
}

// Pods returns the pods of the node as their sources have them, which must not be
// changed.
func (p *Pods) Pods(parent context.Context) (evict.Pods, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	p.mu.Lock()
	epoch, revision, known := p.epoch, p.revision, p.last
	p.mu.Unlock()
	r, err := p.client.ListDesiredPods(ctx, &podsyncv1.ListDesiredPodsRequest{KnownEpoch: epoch, KnownRevision: revision})
	if err != nil {
		return evict.Pods{}, fmt.Errorf("ask podsync for the pods: %w", rpcerr.FromStatus(err))
	}
	known.Epoch, known.Partial, known.Endings, known.EndingsKnown = r.GetEpoch(), r.GetPartial(), endings(r.GetEndings()), r.GetEndingsKnown()
	if r.GetUnchanged() {
		return known, nil
	}
	known.Pods = make([]*v1.Pod, 0, len(r.GetPods()))
	for _, data := range r.GetPods() {
		pod, err := decode(data)
		if err != nil {
			return evict.Pods{}, err
		}
		known.Pods = append(known.Pods, pod)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch, p.revision, p.last = r.GetEpoch(), r.GetRevision(), known
	return known, nil
}

// endings are the pods that podsync ends for a reason of the node's own.
func endings(all []*podsyncv1.PodEnding) map[types.UID]evict.Ending {
	out := make(map[types.UID]evict.Ending, len(all))
	for _, e := range all {
		grace := v1.DefaultTerminationGracePeriodSeconds * time.Second
		if e.GetGrace() != nil {
			grace = e.GetGrace().AsDuration()
		}
		// The clock may have been set since.
		since := time.Now().Add(-max(time.Since(e.GetSince().AsTime()), 0))
		out[types.UID(e.GetUid())] = evict.Ending{
			Namespace: e.GetNamespace(), Name: e.GetName(), Reason: e.GetReason(), Message: e.GetMessage(), Signal: e.GetSignal(), Since: since, Grace: grace, Ended: e.GetEnded(),
		}
	}
	return out
}

func decode(data []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := pod.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("%w: decode a pod of podsync's: %w", rpcerr.ErrInternal, err)
	}
	return pod, nil
}

// Follow has saw called with all pods, with podsync's own status of them, at first and
// after each change, until ctx is done or the stream ends. fresh: they are the first of
// a stream. saw must not keep the map.
func (p *Pods) Follow(ctx context.Context, saw func(all map[types.UID]*v1.Pod, fresh bool)) error {
	stream, err := p.api.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		return fmt.Errorf("follow podsync's pods: %w", rpcerr.FromStatus(err))
	}
	all, whole := map[types.UID]*v1.Pod{}, false
	for {
		event, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("follow podsync's pods: %w", rpcerr.FromStatus(err))
		}
		fresh := event.GetType() == podsapi.EventType_INITIAL_SYNC_COMPLETE
		whole = whole || fresh
		if !fresh {
			pod, err := decode(event.GetPod())
			if err != nil {
				return err
			}
			if event.GetType() == podsapi.EventType_DELETED {
				delete(all, pod.UID)
			} else {
				all[pod.UID] = pod
			}
		}
		if whole {
			saw(all, fresh)
		}
	}
}

// FollowEnds has saw called with which pods there are and whether nothing of them runs
// any more, at first and after each change, until ctx is done or the stream ends.
func (p *Pods) FollowEnds(ctx context.Context, saw func(ended map[types.UID]bool)) error {
	return p.Follow(ctx, func(all map[types.UID]*v1.Pod, _ bool) {
		ended := make(map[types.UID]bool, len(all))
		for uid, pod := range all {
			ended[uid] = eviction.Ended(pod)
		}
		saw(ended)
	})
}

// ended are the pods of which nothing runs any more, as podsync has it.
func (p *Pods) ended(parent context.Context) (map[types.UID]bool, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := p.api.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask podsync for its pods: %w", rpcerr.FromStatus(err))
	}
	out := map[types.UID]bool{}
	for _, data := range r.GetPods() {
		pod, err := decode(data)
		if err != nil {
			return nil, err
		}
		out[pod.UID] = eviction.Ended(pod)
	}
	return out, nil
}

// stop returns when podsync keeps the stop; already is whether it did before.
func (p *Pods) stop(parent context.Context, r *podsyncv1.StopPodRequest) (already bool, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	answer, err := p.client.StopPod(ctx, r)
	if err != nil {
		return false, fmt.Errorf("have podsync stop pod %s/%s: %w", r.GetPod().GetNamespace(), r.GetPod().GetName(), rpcerr.FromStatus(err))
	}
	return answer.GetAlready(), nil
}
