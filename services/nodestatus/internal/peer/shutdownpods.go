package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// ShutdownPods ends podsync's pods when the machine goes down. It has shutdown.Pods.
type ShutdownPods struct{ pods *Pods }

// NewShutdownPods returns ShutdownPods of podsync's pods.
func NewShutdownPods(pods *Pods) *ShutdownPods { return &ShutdownPods{pods} }

// askAgain is how long after it a podsync that has not seen all pods is asked again.
const askAgain = 250 * time.Millisecond

// Close has no pod admitted any more, and saw called with the pods at first and after
// each change, until ctx is done.
func (p *ShutdownPods) Close(ctx context.Context, saw func(pods []shutdown.Pod, fresh, whole bool)) error {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.2})
	for {
		known, _, err := p.setShutdown(ctx, true)
		if err == nil { // That podsync is away is told elsewhere.
			_ = p.watch(ctx, known, func(pods []shutdown.Pod, fresh bool) {
				retry.Reset()
				saw(pods, fresh, known)
			})
		}
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}

// awaitKnown waits until podsync knows all pods, or its end.
func (p *ShutdownPods) awaitKnown(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
		if known, _, err := p.setShutdown(ctx, true); known || err != nil {
			return
		}
	}
}

// watch follows the pods on one stream, until that ends; where podsync did not know all
// before it was opened, until it does.
func (p *ShutdownPods) watch(parent context.Context, known bool, saw func(pods []shutdown.Pod, fresh bool)) error {
	ctx, cancel := context.WithCancel(parent)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	if !known {
		waiting.Go(func() {
			defer cancel()
			p.awaitKnown(ctx)
		})
	}
	return p.pods.Follow(ctx, func(all map[types.UID]*v1.Pod, fresh bool) {
		pods := make([]shutdown.Pod, 0, len(all))
		for _, pod := range all {
			pods = append(pods, podOf(pod))
		}
		saw(pods, fresh)
	})
}

func podOf(pod *v1.Pod) shutdown.Pod {
	out := shutdown.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Ended: eviction.Ended(pod)}
	if pod.Spec.Priority != nil {
		out.Priority = *pod.Spec.Priority
	}
	return out
}

// Stop has a pod ended within a time, or its own where that is shorter.
func (p *ShutdownPods) Stop(parent context.Context, pod shutdown.Pod, grace time.Duration) (stops bool, err error) {
	_, err = p.pods.stop(parent, &podsyncv1.StopPodRequest{
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
	return false, err
}

// Open has pods admitted again.
func (p *ShutdownPods) Open(ctx context.Context) error {
	_, _, err := p.setShutdown(ctx, false)
	return err
}

// Mounted are the pods that have ended and still have volumes.
func (p *ShutdownPods) Mounted(ctx context.Context) (shutdown.Mounted, error) {
	_, mounted, err := p.setShutdown(ctx, true)
	return mounted, err
}

// setShutdown says whether pods are admitted. known: podsync knows all pods; mounted are
// those that have ended and have volumes.
func (p *ShutdownPods) setShutdown(parent context.Context, active bool) (known bool, mounted shutdown.Mounted, err error) {
	ctx, cancel := context.WithTimeout(parent, callDeadline)
	defer cancel()
	r, err := p.pods.client.SetShutdown(ctx, &podsyncv1.SetShutdownRequest{Active: active})
	switch {
	case errors.Is(err, rpcerr.ErrUnimplemented):
		return true, mounted, nil // An older one goes by the Node.
	case err != nil:
		return false, mounted, fmt.Errorf("tell podsync whether the machine goes down: %w", err)
	}
	mounted.UIDs = r.GetUidsWithVolumes()
	mounted.Unnamed = int(r.GetPodsWithVolumes()) - len(mounted.UIDs)
	return r.GetPodsKnown(), mounted, nil
}

// Untold are how many pods' ends the apiserver has not heard of: those that have ended
// here and whose objects, as podsync has them from there, have not. A static pod's
// mirror is none of them.
func (p *ShutdownPods) Untold(parent context.Context) (int, error) {
	here, err := p.pods.ended(parent)
	if err != nil {
		return 0, err
	}
	there, err := p.pods.Pods(parent)
	if err != nil {
		return 0, err
	}
	untold := 0
	for _, pod := range there.Pods {
		if here[pod.UID] && !eviction.Ended(pod) {
			untold++
		}
	}
	return untold, nil
}
