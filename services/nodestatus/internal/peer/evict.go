package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// reclaimDeadline bounds a reclaim: a runtime takes long to remove many images.
const reclaimDeadline = 2 * time.Minute

// Pods asks podsync for pods, and has it stop them. Errors wrap a class of rpcerr.
// Safe for concurrent use.
type Pods struct {
	client podsyncv1.PodSyncServiceClient

	mu sync.Mutex
	// last is what podsync answered last, pods what was in it.
	epoch, revision uint64
	pods            []*v1.Pod
}

// NewPods returns a client.
func NewPods(conn grpc.ClientConnInterface) *Pods {
	return &Pods{client: podsyncv1.NewPodSyncServiceClient(conn)}
}

// Pods returns the pods of the node, which must not be changed.
func (p *Pods) Pods(parent context.Context) ([]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	p.mu.Lock()
	epoch, revision, known := p.epoch, p.revision, p.pods
	p.mu.Unlock()
	r, err := p.client.ListDesiredPods(ctx, &podsyncv1.ListDesiredPodsRequest{KnownEpoch: epoch, KnownRevision: revision})
	if err != nil {
		return nil, fmt.Errorf("ask podsync for the pods: %w", rpcerr.FromStatus(err))
	}
	if r.GetUnchanged() {
		return known, nil
	}
	pods := make([]*v1.Pod, 0, len(r.GetPods()))
	for _, data := range r.GetPods() {
		pod := &v1.Pod{}
		if err := pod.Unmarshal(data); err != nil {
			return nil, fmt.Errorf("%w: decode a pod of podsync's: %w", rpcerr.ErrInternal, err)
		}
		pods = append(pods, pod)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch, p.revision, p.pods = r.GetEpoch(), r.GetRevision(), pods
	return pods, nil
}

// StopPod returns when podsync keeps the stop; already is whether it did before.
func (p *Pods) StopPod(parent context.Context, stop evict.Stop) (already bool, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	req := &podsyncv1.StopPodRequest{
		Pod:    &podsyncv1.PodRef{Namespace: stop.Pod.Namespace, Name: stop.Pod.Name, Uid: string(stop.Pod.UID)},
		Reason: eviction.Reason, Message: stop.Message, Grace: durationpb.New(stop.Grace), EventAnnotations: stop.Annotations,
	}
	if stop.Disruption {
		req.DisruptionReason, req.DisruptionMessage = eviction.DisruptionReason, stop.Message
	}
	r, err := p.client.StopPod(ctx, req)
	if err != nil {
		return false, fmt.Errorf("have podsync stop pod %s/%s: %w", stop.Pod.Namespace, stop.Pod.Name, rpcerr.FromStatus(err))
	}
	return r.GetAlready(), nil
}

// Reclaim has podsync free what nobody needs.
func (p *Pods) Reclaim(parent context.Context, what eviction.Reclaim) (evict.Reclaimed, error) {
	ctx, cancel := context.WithTimeout(parent, reclaimDeadline)
	defer cancel()
	r, err := p.client.Reclaim(ctx, &podsyncv1.ReclaimRequest{Containers: what.Containers, Images: what.Images})
	if err != nil {
		return evict.Reclaimed{}, fmt.Errorf("have podsync reclaim: %w", rpcerr.FromStatus(err))
	}
	return evict.Reclaimed{Containers: r.GetContainers(), Images: r.GetImages(), ImageBytes: r.GetImageBytes(), Failed: r.GetFailed()}, nil
}

// SetPressure tells podsync what the node is short of.
func (p *Pods) SetPressure(parent context.Context, conditions []string, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	_, err := p.client.SetPressure(ctx, &podsyncv1.SetPressureRequest{Conditions: conditions, Ttl: durationpb.New(ttl)})
	if err != nil {
		return fmt.Errorf("tell podsync about pressure: %w", rpcerr.FromStatus(err))
	}
	return nil
}

// Summary asks for the node's figures; brief leaves out all but CPU and memory.
func (s *Stats) Summary(parent context.Context, brief bool) (*statsapi.Summary, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := s.client.GetSummary(ctx, &statsv1.GetSummaryRequest{OnlyCpuAndMemory: brief})
	if err != nil {
		return nil, fmt.Errorf("ask stats for the summary: %w", rpcerr.FromStatus(err))
	}
	out := &statsapi.Summary{}
	if err := json.Unmarshal(r.GetSummaryJson(), out); err != nil {
		return nil, fmt.Errorf("%w: decode the summary of stats: %w", rpcerr.ErrInternal, err)
	}
	return out, nil
}
