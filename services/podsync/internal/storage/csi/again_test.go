package csi

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// publishedTimes waits until the driver was asked to publish so many times.
func (b *bench) publishedTimes(t *testing.T, n int) {
	t.Helper()
	for range 3000 {
		if len(b.driver.Published()) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("published %d times, want %d", len(b.driver.Published()), n)
}

// Nor does a driver that fails at it take from its pod what is there
// (kubernetes/kubernetes#139045).
func TestAVolumeWhoseDriverWantsThatIsPublishedAgainAsLongAsItIsThere(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	b.register(t)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.publishedTimes(t, 3)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
	b.publishedTimes(t, len(b.driver.Published())+3)
	if n := len(b.mounts.Mounts()); n != 1 {
		t.Fatalf("%d mounts: what stands stays when it cannot be published again", n)
	}
	b.fault("NodePublishVolume", nil)
	if _, err := b.Setup(t.Context(), b.request()); err != nil { // of a newer version of the pod
		t.Fatal(err)
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // as many rounds as ten
	calls := b.driver.Calls()
	if i := slices.Index(calls, "NodeUnpublishVolume"); i != len(calls)-1 {
		t.Errorf("after it was unpublished the driver was asked for %v", calls[i+1:])
	}
	b.gone(t)
}

func TestADeviceWhoseDriverWantsThatIsPublishedAgainAsLongAsItIsThere(t *testing.T) {
	b := newStaging(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.publishedTimes(t, 3)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil { // of a newer version of the pod
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
	n := len(b.driver.Published())
	time.Sleep(50 * time.Millisecond) // as many rounds as ten
	if more := len(b.driver.Published()) - n; more > 0 {
		t.Errorf("after it was unpublished it was published %d times", more)
	}
}

// toldOnPods are the events of pods.
type toldOnPods chan string

func (e toldOnPods) Pod(_ *v1.Pod, _, reason, message string) {
	select {
	case e <- reason + ": " + message:
	default:
	}
}

func (toldOnPods) Volume(*v1.PersistentVolume, string, string, string) {}

// TestThatAVolumeCannotBePublishedAgainIsSaidOnThePodUntilItIs: with a kubelet FailedMount.
func TestThatAVolumeCannotBePublishedAgainIsSaidOnThePodUntilItIs(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	events := make(toldOnPods, 10)
	b.deps.Stale = volume.NewStale(events)
	b.register(t)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	r := b.request()
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "the vault is sealed") })
	b.publishedTimes(t, len(b.driver.Published())+5)
	if got := <-events; !strings.HasPrefix(got, `FailedMount: MountVolume.SetUp failed for volume "`+r.Volume.Name+`" : `) || !strings.Contains(got, "the vault is sealed") {
		t.Errorf("said is %q", got)
	}
	if all := b.deps.Stale.Of(r.Pod.UID); len(all) != 1 || all[0].Volume != r.Volume.Name || all[0].Retry.IsZero() {
		t.Errorf("not up to date are %+v", all)
	}
	if n := len(events); n != 0 {
		t.Errorf("of five failures in a row it was said %d times more", n)
	}
	b.fault("NodePublishVolume", nil)
	b.publishedTimes(t, len(b.driver.Published())+3)
	if all := b.deps.Stale.Of(r.Pod.UID); len(all) != 0 {
		t.Errorf("once it was published again, not up to date are %+v", all)
	}
}
