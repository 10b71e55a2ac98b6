package observe

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

// placeTime is how long a background look keeps its place among the parallel
// ones; a slower one goes on, but no longer in the way of others.
const placeTime = 500 * time.Millisecond

// Refresh looks at one pod now. When it returns nil, what is known of the pod
// is no older than the call.
func (o *Observer) Refresh(ctx context.Context, uid types.UID) error {
	seq := o.table.begin()
	sandboxes, err := o.client.ListSandboxes(ctx, string(uid))
	if err != nil {
		return fmt.Errorf("list sandboxes of pod %s: %w", uid, err)
	}
	containers, err := o.client.ListContainers(ctx, string(uid))
	if err != nil {
		return fmt.Errorf("list containers of pod %s: %w", uid, err)
	}
	todo := o.table.takeList(seq, uid, sandboxes, containers)
	return o.inspect(ctx, uid, todo[uid])
}

// SawContainer looks at one container after something was done to it.
func (o *Observer) SawContainer(ctx context.Context, id, sandboxID string) error {
	began := time.Now()
	st, err := o.client.ContainerStatus(ctx, id)
	switch {
	case cri.IsNotFound(err):
		o.table.remove(id)
		return nil
	case err != nil:
		return fmt.Errorf("look at container %s: %w", id, err)
	}
	o.expectEvent(ctx, o.table.setContainer(st, sandboxID, began))
	return nil
}

// SawSandbox looks at one sandbox after something was done to it.
func (o *Observer) SawSandbox(ctx context.Context, id string) error {
	st, err := o.client.SandboxStatus(ctx, id)
	switch {
	case cri.IsNotFound(err):
		o.table.remove(id)
		return nil
	case err != nil:
		return fmt.Errorf("look at sandbox %s: %w", id, err)
	}
	o.table.setSandbox(st)
	return nil
}

// Gone tells that the runtime removed a sandbox or container on our request.
func (o *Observer) Gone(id string) { o.table.remove(id) }

// inspect looks at what a list showed to be new or changed. All of it is tried;
// the first error is returned.
func (o *Observer) inspect(ctx context.Context, uid types.UID, w *work) error {
	if w == nil || w.empty() {
		o.table.settle(uid)
		return nil
	}
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, id := range w.sandboxes {
		keep(o.SawSandbox(ctx, id))
	}
	for id, sandboxID := range w.containers {
		keep(o.SawContainer(ctx, id, sandboxID))
	}
	if first == nil {
		o.table.settle(uid)
	}
	return first
}

// relist lists everything and looks at what changed, each pod by itself.
func (o *Observer) relist(ctx context.Context) error {
	began := time.Now()
	defer func() { o.metrics.Relisted(time.Since(began), o.sinceRelist(began)) }() // one that fails, too
	seq := o.table.begin()
	byPods := false
	list, err := inventory.All(ctx, o.client, func() ([]types.UID, error) {
		byPods = true
		return o.pods()
	})
	if err != nil {
		return err
	}
	o.listedBy(ctx, byPods)
	o.listedWithout(ctx, list.TooLarge)
	todo := o.table.takeAll(seq, list)
	for uid, w := range todo {
		o.lookLater(ctx, uid, w)
	}
	o.first.Do(func() { o.background.Go(func() { o.awaitWhole(ctx) }) })
	o.mu.Lock()
	o.runtime.LastRelist = time.Now()
	o.mu.Unlock()
	return nil
}

// sinceRelist is how long before a relist the last one began; zero for the first.
func (o *Observer) sinceRelist(began time.Time) (since time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.relistBegan.IsZero() {
		since = began.Sub(o.relistBegan)
	}
	o.relistBegan = began
	return since
}

// listedBy says when everything has become too much for one message of the runtime, or
// no longer is.
func (o *Observer) listedBy(ctx context.Context, pods bool) {
	o.mu.Lock()
	changed := o.byPods != pods
	o.byPods = pods
	o.mu.Unlock()
	switch log := klog.FromContext(ctx); {
	case !changed:
	case pods:
		log.Info("What the runtime has does not fit into one of its messages; it is listed pod by pod, which takes longer and costs more. Delete pods that have ended, or set --maximum-dead-containers")
	default:
		log.Info("What the runtime has fits into one of its messages again")
	}
}

// mostTooLarge is how many pods are named that are too large to be listed.
const mostTooLarge = 5

// listedWithout says of which pods there is too much for one message of the runtime:
// what they have is not looked after until there is less of it.
func (o *Observer) listedWithout(ctx context.Context, pods map[types.UID]error) {
	uids := slices.Sorted(maps.Keys(pods))
	o.mu.Lock()
	changed := !slices.Equal(o.tooLarge, uids)
	o.tooLarge = uids
	o.mu.Unlock()
	if !changed {
		return
	}
	if len(uids) == 0 {
		o.health.Set("large pods", true, "")
		return
	}
	var named []string
	for _, uid := range uids[:min(len(uids), mostTooLarge)] {
		named = append(named, o.table.nameOf(uid))
	}
	text := fmt.Sprintf("what the container runtime has of %s does not fit into one of its messages, and is not looked after; other pods are not affected. Remove its dead containers (crictl rm), or delete the pod: large annotations and labels, and many dead containers of a pod, make it large", strings.Join(named, ", "))
	if more := len(uids) - len(named); more > 0 {
		text += fmt.Sprintf(" (and of %d other pods)", more)
	}
	o.health.Set("large pods", false, text)
	klog.FromContext(ctx).Error(pods[uids[0]], "Pods are too large to be listed; the others are not affected", "pods", len(uids), "named", strings.Join(named, ", "))
}

// pods are those that the runtime may have something of.
func (o *Observer) pods() ([]types.UID, error) {
	uids, err := inventory.OnDisk(o.cfg.PodsDir, o.cfg.PodLogsDir)
	return append(uids, o.table.uids()...), err
}

// lookLater looks at a pod in the background until that works: at w, or, when w
// is nil or does not work, at all of the pod. One such look per pod is under
// way at most; a change meanwhile makes it look once more.
func (o *Observer) lookLater(ctx context.Context, uid types.UID, w *work) {
	o.mu.Lock()
	_, busy := o.looking[uid]
	o.looking[uid] = busy
	o.mu.Unlock()
	if busy {
		return
	}
	look := func(ctx context.Context) error { return o.Refresh(ctx, uid) }
	first := look
	if w != nil {
		first = func(ctx context.Context) error { return o.inspect(ctx, uid, w) }
	}
	o.background.Go(func() {
		o.lookUntilSeen(ctx, uid, first)
		for o.lookAgain(uid) && ctx.Err() == nil {
			o.lookUntilSeen(ctx, uid, look)
		}
	})
}

// lookAgain ends the background look of a pod unless another was asked for.
func (o *Observer) lookAgain(uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looking[uid] {
		o.looking[uid] = false
		return true
	}
	delete(o.looking, uid)
	return false
}

// RefreshUntilSeen looks at one pod until that works or ctx is done, however long the
// runtime takes to say: of what an action may have done all the same, though it failed,
// nothing is known before.
func (o *Observer) RefreshUntilSeen(ctx context.Context, uid types.UID) {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: .2})
	untilSeen(ctx, uid, retry, 2, func(int) error { return o.Refresh(ctx, uid) })
}

// lookUntilSeen looks at a pod, with first and then at all of it, until that works or
// ctx is done.
func (o *Observer) lookUntilSeen(ctx context.Context, uid types.UID, first func(context.Context) error) {
	retry := backoff.New(backoff.Config{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Jitter: .2})
	untilSeen(ctx, uid, retry, 0, func(n int) error {
		if n == 0 {
			return o.inPlace(ctx, first)
		}
		return o.inPlace(ctx, func(ctx context.Context) error { return o.Refresh(ctx, uid) })
	})
}

// untilSeen tries until that works or ctx is done; it tells of the failure that comes
// after so many others.
func untilSeen(ctx context.Context, uid types.UID, retry *backoff.Backoff, told int, try func(n int) error) {
	for n := 0; ctx.Err() == nil; n++ {
		err := try(n)
		if err == nil || ctx.Err() != nil {
			return
		}
		if n == told {
			klog.FromContext(ctx).Error(err, "Could not look at a pod in the runtime; trying again until it works", "podUID", uid)
		}
		_ = retry.Wait(ctx) // of its end the loop knows by itself
	}
}

// inPlace runs look within the bound on parallel ones.
func (o *Observer) inPlace(ctx context.Context, look func(context.Context) error) error {
	select {
	case o.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	release := time.AfterFunc(placeTime, func() { <-o.places })
	err := look(ctx)
	if release.Stop() {
		<-o.places
	}
	return err
}

// relistLoop lists at once, then slowly, and whenever somebody asks for it.
func (o *Observer) relistLoop(ctx context.Context) {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second})
	failed := false
	for ctx.Err() == nil {
		err := o.relist(ctx)
		wait := o.relistPeriod()
		if err != nil {
			o.check.Set()
			wait = retry.Next()
		} else {
			retry.Reset()
		}
		failed = o.listed(ctx, err, failed)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-o.kick:
		case <-t.C:
		}
		t.Stop()
	}
}

// listed shows whether everything could be listed, and returns whether it could not. That
// the runtime says that it is well does not mean so, and nothing new is seen without.
func (o *Observer) listed(ctx context.Context, err error, failed bool) bool {
	switch {
	case ctx.Err() != nil, cri.IsUnavailable(err): // then the runtime's own entry says it
		return failed
	case err != nil:
		o.health.Set("containers", false, fmt.Sprintf(
			"what the container runtime at %s has cannot be listed: %v; it is tried again by itself, see the runtime's log", o.cfg.Endpoint, err))
	case failed:
		o.health.Set("containers", true, "")
	}
	return err != nil
}

func (o *Observer) relistPeriod() time.Duration {
	period := o.cfg.RelistNoEvents
	if o.Runtime().Events {
		period = o.cfg.RelistEvents
	}
	return period + time.Duration(rand.Int64N(int64(period)/10+1))
}
