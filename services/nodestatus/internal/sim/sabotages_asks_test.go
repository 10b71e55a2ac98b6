package sim

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// laterShorter is a machine on which less is left when podsync has been wrong for a while.
func laterShorter() func(int64) *scenario {
	return quiet(
		wrong(50*time.Second, time.Minute, "podsync", func(*world, bool) {}), takes("hog", mostMemory), hog(func(p *pod) { p.late = time.Hour }),
		takesAt(65*time.Second, "static", func(u *use) { u.memory += 50 * mi }),
	)
}

// onlyHog is a machine on which one pod alone may go.
func onlyHog() func(int64) *scenario {
	return quiet(func(s *scenario) { s.pods[1].static() }, takes("hog", mostMemory))
}

// besideUnanswered has another pod stopped while podsync does not answer about the first.
func besideUnanswered(name string) hook {
	return onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		other := proto.CloneOf(r)
		other.Pod.Name, other.Pod.Uid = name, "uid-"+name
		w.set(func() { w.podsync.hangs = true })
		time.AfterFunc(time.Second, func() { w.set(func() { w.podsync.hangs = false }) })
		w.lives.Go(func() {
			pause(context.Background(), 10*time.Millisecond)
			_, _ = do(context.Background(), other)
		})
		return do(ctx, r)
	})
}

// heldBack makes each call to stop a pod some time after it was decided.
func heldBack(long time.Duration) hook {
	return onStop(func(ctx context.Context, _ *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		pause(context.Background(), long)
		return do(context.WithoutCancel(ctx), r)
	})
}

// failsOnce has the first call fail, and makes no other.
func failsOnce() hook {
	first := true
	return onStop(func(ctx context.Context, w *world, r *podsyncv1.StopPodRequest, do calls) (proto.Message, error) {
		if !first {
			return nil, fmt.Errorf("%w: it is not asked", rpcerr.ErrUnavailable)
		}
		first = false
		w.set(func() { w.podsync.failing = 100 })
		defer w.set(func() { w.podsync.failing = 0 })
		return do(ctx, r)
	})
}
