package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// ShutdownPods ends podsync's pods when the machine goes down. It has shutdown.Pods.
type ShutdownPods struct {
	client podsyncv1.PodSyncServiceClient
	pods   podsapi.PodsClient
}

// NewShutdownPods returns ShutdownPods of a connection to podsync.
func NewShutdownPods(conn grpc.ClientConnInterface) *ShutdownPods {
	return &ShutdownPods{client: podsyncv1.NewPodSyncServiceClient(conn), pods: podsapi.NewPodsClient(conn)}
}

// Watch has saw called with all pods, at first and after each change, until ctx is done.
func (p *ShutdownPods) Watch(ctx context.Context, saw func(pods []shutdown.Pod, fresh bool)) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.2})
	for {
		_ = p.watch(ctx, func(pods []shutdown.Pod, fresh bool) { // That podsync is away is told elsewhere.
			retry.Reset()
			saw(pods, fresh)
		})
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}

func (p *ShutdownPods) watch(parent context.Context, saw func(pods []shutdown.Pod, fresh bool)) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	stream, err := p.pods.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		return err
	}
	known, whole := map[types.UID]shutdown.Pod{}, false
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		fresh := event.GetType() == podsapi.EventType_INITIAL_SYNC_COMPLETE
		whole = whole || fresh
		if !fresh {
			var pod v1.Pod
			if err := pod.Unmarshal(event.GetPod()); err != nil {
				return fmt.Errorf("read a pod of podsync's: %w", err)
			}
			if event.GetType() == podsapi.EventType_DELETED {
				delete(known, pod.UID)
			} else {
				known[pod.UID] = podOf(&pod)
			}
		}
		if whole {
			saw(slices.Collect(maps.Values(known)), fresh)
		}
	}
}

func podOf(pod *v1.Pod) shutdown.Pod {
	out := shutdown.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Ended: ended(pod)}
	if pod.Spec.Priority != nil {
		out.Priority = *pod.Spec.Priority
	}
	return out
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// Stop has a pod ended within a time, or its own where that is shorter.
func (p *ShutdownPods) Stop(parent context.Context, pod shutdown.Pod, grace time.Duration) (stops bool, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	_, err = p.client.StopPod(ctx, &podsyncv1.StopPodRequest{
		Pod:    &podsyncv1.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: pod.UID},
		Reason: shutdown.Reason, Message: shutdown.Message, Grace: durationpb.New(grace), Shutdown: true,
		DisruptionReason: v1.PodReasonTerminationByKubelet, DisruptionMessage: shutdown.Message,
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, rpcerr.ErrNotFound), errors.Is(err, rpcerr.ErrPrecondition), errors.Is(err, rpcerr.ErrUnimplemented):
		return false, nil // It has ended; or podsync is an older one.
	}
	return false, fmt.Errorf("stop pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// SetShutdown has no pod admitted any more, or again.
func (p *ShutdownPods) SetShutdown(parent context.Context, active bool) error {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	_, err := p.client.SetShutdown(ctx, &podsyncv1.SetShutdownRequest{Active: active})
	if err != nil && !errors.Is(err, rpcerr.ErrUnimplemented) { // An older one goes by the Node.
		return fmt.Errorf("tell podsync whether the machine goes down: %w", err)
	}
	return nil
}

// Untold are how many pods' ends the apiserver has not heard of: those that have ended
// here and whose objects, as podsync has them from there, have not. A static pod's
// mirror is none of them.
func (p *ShutdownPods) Untold(parent context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	here, err := p.pods.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return 0, fmt.Errorf("ask podsync for its pods: %w", err)
	}
	there, err := p.client.ListDesiredPods(ctx, &podsyncv1.ListDesiredPodsRequest{})
	if err != nil {
		return 0, fmt.Errorf("ask podsync for the apiserver's pods: %w", err)
	}
	over := map[types.UID]bool{}
	for _, data := range here.GetPods() {
		var pod v1.Pod
		if err := pod.Unmarshal(data); err != nil {
			return 0, fmt.Errorf("read a pod of podsync's: %w", err)
		}
		over[pod.UID] = ended(&pod)
	}
	untold := 0
	for _, data := range there.GetPods() {
		var pod v1.Pod
		if err := pod.Unmarshal(data); err != nil {
			return 0, fmt.Errorf("read a pod of the apiserver's: %w", err)
		}
		if over[pod.UID] && !ended(&pod) {
			untold++
		}
	}
	return untold, nil
}
