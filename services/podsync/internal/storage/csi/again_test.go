package csi

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/eventually"
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

func TestAClaimsVolumeThatCannotBePublishedAgainIsCalledByItsPersistentVolume(t *testing.T) {
	b := newStaging(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	events := make(toldOnPods, 10)
	b.deps.Stale = volume.NewStale(events)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	must(t, b.setUp(t, "uid-1"))
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "the vault is sealed") })
	const want = `FailedMount: MountVolume.SetUp failed for volume "pv" : `
	if got := <-events; !strings.HasPrefix(got, want) {
		t.Errorf("said is %q, want %s…", got, want)
	}
	if all := b.deps.Stale.Of("uid-1"); len(all) != 1 || all[0].Volume == "pv" {
		t.Errorf("not up to date are %+v: a pod's volumes are known by their names in its spec", all)
	}
}

// TestAVolumeIsPublishedAgainOnceItsDriverWantsThat, and not any more once it does not: the
// requiresRepublish of a CSIDriver can be changed, as by an upgrade that turns rotation on, and
// the kubelet asks for it each time.
func TestAVolumeIsPublishedAgainOnceItsDriverWantsThat(t *testing.T) {
	for name, setUp := range map[string]func(t *testing.T) *bench{
		"in a pod's spec": func(t *testing.T) *bench {
			t.Helper()
			b := newBench(t, nil)
			b.register(t)
			if _, err := b.Setup(t.Context(), b.request()); err != nil {
				t.Fatal(err)
			}
			return b
		},
		"of a claim": func(t *testing.T) *bench {
			t.Helper()
			b := newStaging(t, nil)
			if err := b.setUp(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			return b
		},
		"as a device": func(t *testing.T) *bench {
			t.Helper()
			b := newStaging(t, nil)
			if err := b.mapDeviceOf(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t)
			b.cfg.Again = 5 * time.Millisecond
			for range 2 { // on and off again
				b.wantsAgain(true)
				b.publishedTimes(t, len(b.driver.Published())+3)
				b.wantsAgain(false)
				eventually.True(t, "it is published again without end", func() bool { return b.publishesAgain() == 0 })
			}
		})
	}
}

// wantsAgain has the driver's CSIDriver say whether volumes are to be published again.
func (b *bench) wantsAgain(wants bool) {
	now := b.cluster.driver.DeepCopy()
	now.Spec.RequiresRepublish = &wants
	b.cluster.set(now)
	b.DriverChanged(driverOf)
}

// publishesAgain counts what is being published again and again.
func (b *bench) publishesAgain() (n int) {
	b.Volumes.mu.Lock()
	ids := slices.Collect(maps.Keys(b.volumes))
	b.Volumes.mu.Unlock()
	for _, id := range ids {
		st, leave, err := b.enter(context.Background(), id)
		if err != nil {
			continue
		}
		for _, p := range st.published {
			if p.end != nil {
				n++
			}
		}
		leave()
	}
	return n
}

// TestAVolumeThatIsBeingTakenDownIsNotPublishedAgainSinceItsDriverWantsThat: its driver would not
// let it go, and is asked again.
func TestAVolumeThatIsBeingTakenDownIsNotPublishedAgainSinceItsDriverWantsThat(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	b.register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.fault("NodeUnpublishVolume", func(context.Context) error { return status.Error(codes.Internal, "busy") })
	if err := b.Teardown(t.Context(), b.remains()); err == nil {
		t.Fatal("it is gone")
	}
	b.wantsAgain(true)
	b.republishOne(volumeData{DriverName: driverOf, VolumeHandle: b.driver.Published()[0].GetVolumeId()}.id()) // and what DriverChanged began is no later
	if n := b.publishesAgain(); n != 0 {
		t.Error("it is published again")
	}
	b.fault("NodeUnpublishVolume", nil)
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
}

// TestWhatChangedWhileADriverWasAwayCountsOnceItIsBack: nobody watched what the cluster says of it.
func TestWhatChangedWhileADriverWasAwayCountsOnceItIsBack(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	b.register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.Deregister(b.plugin)
	now := b.cluster.driver.DeepCopy()
	yes := true
	now.Spec.RequiresRepublish = &yes
	b.cluster.set(now)
	b.register(t)
	b.publishedTimes(t, 3)
}

// TestAVolumeThatItsDriverLosesOverPublishingItAgainIsPublishedAgain: that failed, and what says
// whose it is stays.
func TestAVolumeThatItsDriverLosesOverPublishingItAgainIsPublishedAgain(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	b.register(t)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	made, err := b.Setup(t.Context(), b.request())
	if err != nil {
		t.Fatal(err)
	}
	b.fault("NodePublishVolume", func(context.Context) error {
		b.fault("NodePublishVolume", nil)
		return errors.Join(b.mounts.Unmount(made.Path), status.Error(codes.Internal, "broken"))
	})
	b.publishedTimes(t, len(b.driver.Published())+3)
	if mounted, err := b.mounts.Mounted(made.Path); err != nil || !mounted {
		t.Errorf("it is mounted: %v, %v", mounted, err)
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
}

// TestAVolumeWhoseDriverWantsThatIsPublishedAgainForANewerVersionOfItsPod, and not only once it
// is time.
func TestAVolumeWhoseDriverWantsThatIsPublishedAgainForANewerVersionOfItsPod(t *testing.T) {
	b := newBench(t, nil).register(t)
	b.cfg.Again = time.Hour
	yes := true
	b.cluster.driver.Spec.RequiresRepublish, b.cluster.driver.Spec.PodInfoOnMount = &yes, &yes
	r := b.request()
	for _, account := range []string{"one", "two"} {
		r.Pod = r.Pod.DeepCopy()
		r.Pod.Spec.ServiceAccountName = account
		if _, err := b.Setup(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		all := b.driver.Published()
		if got := all[len(all)-1].GetVolumeContext()["csi.storage.k8s.io/serviceAccount.name"]; got != account {
			t.Errorf("published last for %q, want %q", got, account)
		}
	}
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
}

// TestAVolumeIsPublishedAgainAsItsDriverWantedThatWhileTheClusterDoesNotSay, and not any more once
// the cluster says nothing of the driver.
func TestAVolumeIsPublishedAgainAsItsDriverWantedThatWhileTheClusterDoesNotSay(t *testing.T) {
	b := newStaging(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	id := volumeID{driverOf, handleOf}
	b.wantsAgain(true)
	b.publishedTimes(t, len(b.driver.Published())+3)
	b.cluster.fail(errors.New("away"))
	b.republishOne(id)
	if n := b.publishesAgain(); n != 1 {
		t.Errorf("while nobody says whether it is wanted, %d are published again", n)
	}
	b.cluster.fail(nil)
	b.cluster.set(nil)
	b.republishOne(id)
	if n := b.publishesAgain(); n != 0 {
		t.Error("it is published again though its driver's object is gone")
	}
}

// TestAVolumeIsPublishedAgainByOne, however often it is told that its driver wants that: the end
// of one would leave the others.
func TestAVolumeIsPublishedAgainByOne(t *testing.T) {
	b := newStaging(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.wantsAgain(true)
		b.republishOne(volumeID{driverOf, handleOf})
	}
	b.publishedTimes(t, len(b.driver.Published())+3)
	b.wantsAgain(false)
	eventually.True(t, "it is published again without end", func() bool { return b.publishesAgain() == 0 })
	n := len(b.driver.Published())
	time.Sleep(50 * time.Millisecond)                    // as many rounds as ten
	if more := len(b.driver.Published()) - n; more > 1 { // one may have been under way
		t.Errorf("after its end it was published %d times", more)
	}
}

// TestWhatIsInAVolumesPlaceByNowIsNotPublishedAgain, and nobody is told that it cannot be.
func TestWhatIsInAVolumesPlaceByNowIsNotPublishedAgain(t *testing.T) {
	another := persistent("pv", "another", driverOf, "n1")
	device := func(t *testing.T, b *bench) error { t.Helper(); return b.mapDeviceOf(t, "uid-1") }
	files := func(t *testing.T, b *bench) error { t.Helper(); return b.setUp(t, "uid-1") }
	for name, c := range map[string]struct {
		setUp  func(t *testing.T, b *bench) error
		change func(b *bench) error
	}{
		"nothing":               {files, func(b *bench) error { return os.Remove(filepath.Join(b.pvDir("uid-1"), volumeDataFile)) }},
		"another":               {files, func(b *bench) error { return another.write(b.pvDir("uid-1")) }},
		"no link to a device":   {device, func(b *bench) error { return os.Remove(b.link("uid-1")) }},
		"a link to another's":   {device, func(b *bench) error { return another.write(b.devices("pv/data")) }},
		"a device of no record": {device, func(b *bench) error { return os.Remove(b.devices("pv/data/vol_data.json")) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			b.cfg.Again = 20 * time.Millisecond
			events := make(toldOnPods, 10)
			b.deps.Stale = volume.NewStale(events)
			b.cluster.driver.Spec.RequiresRepublish = new(bool)
			*b.cluster.driver.Spec.RequiresRepublish = true
			must(t, c.setUp(t, b))
			_, leave, err := b.enter(t.Context(), volumeID{driverOf, handleOf}) // none is under way
			must(t, err)
			n := len(b.driver.Published())
			must(t, c.change(b))
			leave()
			time.Sleep(100 * time.Millisecond) // as many rounds as three
			if more := len(b.driver.Published()) - n; more != 0 || len(events) != 0 {
				t.Errorf("it was published %d times, and said was %d times that it cannot be", more, len(events))
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheEndOfPublishingAVolumeAgainIsNoFailureOfIt: who waits for the volume's turn meanwhile, as
// a newer version of the pod has it, ends.
func TestTheEndOfPublishingAVolumeAgainIsNoFailureOfIt(t *testing.T) {
	b := newBench(t, nil)
	b.cfg.Again = 5 * time.Millisecond
	events := make(toldOnPods, 10)
	b.deps.Stale = volume.NewStale(events)
	b.register(t)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	_, err := b.Setup(t.Context(), b.request())
	must(t, err)
	data, err := readVolumeData(b.dir())
	must(t, err)
	users := func(want int) func() bool {
		return func() bool {
			b.Volumes.mu.Lock()
			defer b.Volumes.mu.Unlock()
			return b.volumes[data.id()].users == want
		}
	}
	st, leave, err := b.enter(t.Context(), data.id())
	must(t, err)
	eventually.True(t, "it is not published again", users(2))
	st.forget(b.dir(), false)
	eventually.True(t, "who publishes it again waits still", users(1))
	leave()
	time.Sleep(20 * time.Millisecond)
	if len(events) != 0 {
		t.Errorf("said was %q", <-events)
	}
	must(t, b.Teardown(t.Context(), b.remains()))
	b.gone(t)
}
