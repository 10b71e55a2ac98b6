package csi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// followed are the drivers whose objects are followed.
type followed struct {
	mu  sync.Mutex
	all map[string]bool
}

func (f *followed) FollowDriver(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[name] = true
}

func (f *followed) LeaveDriver(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, name)
}

func (f *followed) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[name]
}

// roomy is a node whose driver is asked at a period, in seconds, how many volumes the
// node can have.
func roomy(t *testing.T, period int64) (*bench, *watch.Subscription[string, State], *followed) {
	t.Helper()
	b := newBench(t, nil)
	f := &followed{all: map[string]bool{}}
	b.deps.Cluster = f
	if period > 0 {
		b.cluster.driver.Spec.NodeAllocatableUpdatePeriodSeconds = &period
	}
	b.register(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	sub := b.Subscribe(ctx)
	t.Cleanup(sub.Close)
	if _, err := sub.Next(ctx); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "nobody looks whether there is a period", b.cluster.isAsked)
	return b, sub, f
}

// wantRoom waits for how many volumes the driver says.
func wantRoom(t *testing.T, sub *watch.Subscription[string, State], want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	frame, err := sub.Next(ctx)
	if err != nil || len(frame.Changed) != 1 || frame.Changed[driverOf].MaxVolumes != want {
		t.Fatalf("told was %+v, %v; want %d volumes", frame, err, want)
	}
}

func TestADriverIsAskedAgainHowManyVolumesTheNodeCanHave(t *testing.T) {
	b, sub, f := roomy(t, 1)
	b.driver.SetMaxVolumes(5)
	wantRoom(t, sub, 5)
	b.driver.SetMaxVolumes(6)
	wantRoom(t, sub, 6)
	if !f.has(driverOf) {
		t.Error("what the cluster says of it is not followed")
	}
	b.Deregister(b.plugin)
	if f.has(driverOf) {
		t.Error("what the cluster says of it is followed though it is gone")
	}
}

func TestADriverThatHasNoMoreRoomIsAskedAtOnce(t *testing.T) {
	b, sub, _ := roomy(t, 3600)
	b.driver.SetMaxVolumes(1)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("set up by a driver that is full")
	}
	wantRoom(t, sub, 1)
}

func TestAPeriodThatComesLaterHolds(t *testing.T) {
	b, sub, _ := roomy(t, 0)
	b.driver.SetMaxVolumes(3)
	period := int64(1)
	changed := b.cluster.driver.DeepCopy()
	changed.Spec.NodeAllocatableUpdatePeriodSeconds = &period
	b.cluster.set(changed)
	b.DriverChanged(driverOf)
	b.DriverChanged("unknown")
	wantRoom(t, sub, 3)
}

func TestADriverWhoseVolumeIsNotAttachedForLackOfRoomIsAskedAtOnce(t *testing.T) {
	b := newAttaching(t)
	f := &followed{all: map[string]bool{}}
	b.deps.Cluster = f
	period := int64(3600)
	b.cluster.driver.Spec.NodeAllocatableUpdatePeriodSeconds = &period
	b.Deregister(b.plugin)
	b.register(t)
	sub := b.Subscribe(t.Context())
	defer sub.Close()
	if _, err := sub.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.driver.SetMaxVolumes(2)
	full := int32(codes.ResourceExhausted)
	b.cluster.attachments["csi-"+sum(handleOf+driverOf+"n1")] = storagev1.VolumeAttachmentStatus{
		AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: &full},
	}
	b.shows(true, false)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := b.Attach(ctx, b.claimOf("uid-1")); !errors.Is(err, podstate.ErrNoRoomToAttach) || podstate.VolumeCauseOf(err) != podstate.VolumeNoRoom {
		t.Fatal(err)
	}
	wantRoom(t, sub, 2)
	for name, why := range map[string]storagev1.VolumeError{
		"for another reason": {Message: "no such disk", ErrorCode: ptr.To(int32(codes.NotFound))},
		"for no known one":   {Message: "no such disk"},
	} {
		b.cluster.attachments["csi-"+sum(handleOf+driverOf+"n1")] = storagev1.VolumeAttachmentStatus{AttachError: &why}
		other, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := b.Attach(other, b.claimOf("uid-1")); err == nil || errors.Is(err, podstate.ErrNoRoomToAttach) {
			t.Errorf("not attached %s: %v", name, err)
		}
		stop()
	}
	b.cluster.attachments["csi-"+sum(handleOf+driverOf+"n1")] = storagev1.VolumeAttachmentStatus{
		AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: &full},
	}
	changed := b.cluster.driver.DeepCopy()
	changed.Spec.NodeAllocatableUpdatePeriodSeconds = nil
	b.cluster.set(changed)
	again, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := b.Attach(again, b.claimOf("uid-1")); err == nil || errors.Is(err, podstate.ErrNoRoomToAttach) {
		t.Errorf("with a driver that tells of no room: %v", err)
	}
}

// TestAVolumeThatIsNotAttachedForAnotherReasonIsNotSaidToLackRoom: its pod would be rejected.
func TestAVolumeThatIsNotAttachedForAnotherReasonIsNotSaidToLackRoom(t *testing.T) {
	full, denied := int32(codes.ResourceExhausted), int32(codes.PermissionDenied)
	for name, c := range map[string]struct {
		why      *storagev1.VolumeError
		noPeriod bool
		end      func(ctx context.Context) (context.Context, context.CancelFunc)
	}{
		"nobody has tried":          {end: soon},
		"another code":              {why: &storagev1.VolumeError{Message: "no", ErrorCode: &denied}, end: soon},
		"no code":                   {why: &storagev1.VolumeError{Message: "ResourceExhausted"}, end: soon},
		"its driver has no period":  {why: &storagev1.VolumeError{Message: "full", ErrorCode: &full}, noPeriod: true, end: soon},
		"the pod is gone meanwhile": {why: &storagev1.VolumeError{Message: "full", ErrorCode: &full}, end: cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			b := newAttaching(t)
			if period := int64(3600); !c.noPeriod {
				b.cluster.driver.Spec.NodeAllocatableUpdatePeriodSeconds = &period
			}
			b.cluster.attachments["csi-"+sum(handleOf+driverOf+"n1")] = storagev1.VolumeAttachmentStatus{AttachError: c.why}
			b.shows(true, false)
			ctx, cancel := c.end(t.Context())
			defer cancel()
			if err := b.Attach(ctx, b.claimOf("uid-1")); err == nil || errors.Is(err, podstate.ErrNoRoomToAttach) {
				t.Errorf("said is: %v", err)
			}
			b.Forget("uid-1")
			b.nothing(t)
		})
	}
}

// soon is a ctx whose time is over in a moment.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 50*time.Millisecond)
}

// cancelled is a ctx that has ended.
func cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func TestADriverThatHasNoRoomForTheQuestionItselfIsNotAskedWithoutEnd(t *testing.T) {
	b, _, _ := roomy(t, 3600)
	var asked atomic.Int64
	b.fault("NodeGetInfo", func(context.Context) error {
		asked.Add(1)
		return status.Error(codes.ResourceExhausted, "too many requests")
	})
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("set up by a driver that is full")
	}
	eventually.True(t, "it is not asked", func() bool { return asked.Load() > 0 })
	time.Sleep(200 * time.Millisecond)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestADriverWithoutAPeriodIsNotAskedThoughItHasNoMoreRoom: how many volumes there may be does not
// change.
func TestADriverWithoutAPeriodIsNotAskedThoughItHasNoMoreRoom(t *testing.T) {
	b, _, _ := roomy(t, 0)
	var asked atomic.Int64
	b.fault("NodeGetInfo", func(context.Context) error {
		asked.Add(1)
		return nil
	})
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") })
	if _, err := b.Setup(t.Context(), b.request()); err == nil {
		t.Fatal("set up by a driver that is full")
	}
	time.Sleep(100 * time.Millisecond)
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

func TestNobodyBeginsToAskOnceAllHaveEnded(t *testing.T) {
	var r rooms
	r.close()
	r.start(func() { t.Error("somebody asks") })
	r.work.Wait()
}
