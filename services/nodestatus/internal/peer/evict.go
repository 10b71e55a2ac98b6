package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/evict"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// reclaimDeadline bounds a reclaim: a runtime takes long to remove many images.
const reclaimDeadline = 2 * time.Minute

// StopPod returns when podsync keeps the stop; already is whether it did before.
func (p *Pods) StopPod(parent context.Context, stop evict.Stop) (already bool, err error) {
	req := &podsyncv1.StopPodRequest{
		Pod:    &podsyncv1.PodRef{Namespace: stop.Pod.Namespace, Name: stop.Pod.Name, Uid: string(stop.Pod.UID)},
		Reason: eviction.Reason, Message: stop.Message, Signal: stop.Signal, Grace: durationpb.New(stop.Grace), EventAnnotations: stop.Annotations,
	}
	if stop.Disruption {
		req.DisruptionReason, req.DisruptionMessage = eviction.DisruptionReason, stop.Message
	}
	return p.stop(parent, req)
}

// notAllKnown is in what an older podsync failed at that had just been started, and says so
// with no error.
const notAllKnown = "not all pods of the node are known yet"

// Reclaim has podsync free what nobody needs.
func (p *Pods) Reclaim(parent context.Context, what eviction.Reclaim) (evict.Reclaimed, error) {
	ctx, cancel := context.WithTimeout(parent, reclaimDeadline)
	defer cancel()
	p.mu.Lock()
	out := evict.Reclaimed{Epoch: p.epoch}
	p.mu.Unlock()
	r, err := p.client.Reclaim(ctx, &podsyncv1.ReclaimRequest{Containers: what.Containers, Images: what.Images})
	if err != nil {
		return out, fmt.Errorf("have podsync reclaim: %w", rpcerr.FromStatus(err))
	}
	out.Containers, out.Images, out.ImageBytes, out.Failed = r.GetContainers(), r.GetImages(), r.GetImageBytes(), r.GetFailed()
	if slices.ContainsFunc(out.Failed, func(text string) bool { return strings.Contains(text, notAllKnown) }) {
		return out, fmt.Errorf("%w: have podsync reclaim: %s", rpcerr.ErrUnavailable, strings.Join(out.Failed, "; "))
	}
	return out, nil
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

// Summary asks for the node's figures.
func (s *Stats) Summary(parent context.Context, detail evict.Detail) (*statsapi.Summary, error) {
	out, _, err := s.summary(parent, &statsv1.GetSummaryRequest{
		OnlyCpuAndMemory: detail == evict.Brief, CountThreads: detail == evict.Full, CountEnded: detail != evict.Brief,
	})
	return out, err
}

// Weighed asks for them with what layers weigh now, and by the figures of which pods none is to be
// stopped alone.
func (s *Stats) Weighed(parent context.Context) (*statsapi.Summary, map[types.UID]bool, error) {
	out, r, err := s.summary(parent, &statsv1.GetSummaryRequest{RenewLayers: true, CountEnded: true})
	return out, set(r.GetUnsurePodUids()), err
}

// Renewed asks for them with what lies on disks measured since a time, or anew if that is
// zero, and of which pods there was no time for that; an older stats measures all anew.
func (s *Stats) Renewed(parent context.Context, since time.Time, pods ...types.UID) (*statsapi.Summary, eviction.Late, error) {
	req := &statsv1.GetSummaryRequest{RenewDisk: true, CountEnded: true}
	for _, uid := range pods {
		req.RenewPodUids = append(req.RenewPodUids, string(uid))
	}
	if !since.IsZero() {
		req.RenewSince = timestamppb.New(since)
	}
	out, r, err := s.summary(parent, req)
	return out, eviction.Late{Layers: set(r.GetUnweighedPodUids()), Directories: set(r.GetUnmeasuredPodUids())}, err
}

func set(uids []string) map[types.UID]bool {
	out := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		out[types.UID(uid)] = true
	}
	return out
}

func (s *Stats) summary(parent context.Context, req *statsv1.GetSummaryRequest) (*statsapi.Summary, *statsv1.GetSummaryResponse, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := s.client.GetSummary(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask stats for the summary: %w", rpcerr.FromStatus(err))
	}
	if r.GetNameless() {
		return nil, nil, fmt.Errorf("%w: stats was just started and has not heard which pods there are", rpcerr.ErrUnavailable)
	}
	out := &statsapi.Summary{}
	if err := json.Unmarshal(r.GetSummaryJson(), out); err != nil {
		return nil, nil, fmt.Errorf("%w: decode the summary of stats: %w", rpcerr.ErrInternal, err)
	}
	countThreads(out.Pods, r.GetThreads())
	return out, r, nil
}

// countThreads has each thread count where the summary counts processes: the machine has
// one number for each, and is short of those.
func countThreads(pods []statsapi.PodStats, threads map[string]uint64) {
	for i := range pods {
		s := pods[i].ProcessStats
		if n := threads[pods[i].PodRef.UID]; s != nil && s.ProcessCount != nil && n > *s.ProcessCount {
			*s.ProcessCount = n
		}
	}
}

func inVolumes(all []*statsv1.UnlinkedInVolume) (out map[string]eviction.Files) {
	for _, v := range all {
		if out == nil {
			out = make(map[string]eviction.Files, len(all))
		}
		out[v.GetVolume()] = eviction.Files{Bytes: v.GetBytes(), Count: v.GetFiles()}
	}
	return out
}

// Unlinked asks for the files without a name that containers hold open, by pod; of an
// older stats there are none. all: there was time to look at every one; late are the pods
// of which there was not, as far as stats says so.
func (s *Stats) Unlinked(parent context.Context) (files map[types.UID][]eviction.Unlinked, late map[types.UID]bool, all bool, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := s.client.ListUnlinkedFiles(ctx, &statsv1.ListUnlinkedFilesRequest{})
	if err = rpcerr.FromStatus(err); err != nil && !errors.Is(err, rpcerr.ErrUnimplemented) {
		return nil, nil, false, fmt.Errorf("ask stats for open files without a name: %w", err)
	}
	files, late = map[types.UID][]eviction.Unlinked{}, map[types.UID]bool{}
	for _, u := range r.GetContainers() {
		uid := types.UID(u.GetPodUid())
		if u.GetIncomplete() {
			late[uid] = true
		}
		held := eviction.Unlinked{
			Container: u.GetContainer(), Largest: u.GetLargest(),
			Root:  eviction.Files{Bytes: u.GetRootBytes(), Count: u.GetRootFiles()},
			Layer: eviction.Files{Bytes: u.GetLayerBytes(), Count: u.GetLayerFiles()},
		}
		held.Volumes, held.Counted = inVolumes(u.GetVolumes()), inVolumes(u.GetCountedVolumes())
		files[uid] = append(files[uid], held)
	}
	return files, late, !r.GetIncomplete(), nil
}
