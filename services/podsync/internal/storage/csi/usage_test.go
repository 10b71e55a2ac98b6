package csi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// measuring is a node whose driver says how full volumes are, and more.
func measuring(t *testing.T, more ...spec.NodeServiceCapability_RPC_Type) *bench {
	t.Helper()
	b := newBench(t, func(c *fakecsi.Config) {
		c.Can = append(more, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS)
		c.Condition = fakecsi.SaidOf(true, "worn out")
	}).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestADriverIsAskedHowFullAVolumeIs(t *testing.T) {
	want := volume.Usage{Driver: driverOf, Available: 60, Capacity: 100, Used: 40, InodesFree: 6, Inodes: 10, InodesUsed: 4}
	b := measuring(t)
	if got, err := b.Usage(t.Context(), b.dir()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	b = measuring(t, fakecsi.CanSayCondition)
	got, err := b.Usage(t.Context(), b.dir())
	if err != nil || got.Condition == nil || *got.Condition != (volume.Condition{Abnormal: true, Message: "worn out"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestADriverIsAskedHowLargeADeviceIs: at the place where a kubelet has it asked.
func TestADriverIsAskedHowLargeADeviceIs(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = append(c.Can, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS) })
	if err := b.mapDeviceOf(t, "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Usage(t.Context(), b.link("a")); err != nil || got.Driver != driverOf || got.Capacity != 100 {
		t.Errorf("%+v, %v", got, err)
	}
	b.unmap(t, "a")
	if got, err := b.Usage(t.Context(), b.link("a")); err == nil {
		t.Errorf("once it is gone: %+v", got)
	}
}

func TestADriverThatCannotSayHowFullAVolumeIsIsNotAsked(t *testing.T) {
	b := newBench(t, nil).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Usage(t.Context(), b.dir()); !errors.Is(err, volume.ErrNoUsage) {
		t.Error(err)
	}
	b.Deregister(b.plugin)
	if _, err := b.Usage(t.Context(), b.dir()); err == nil || !strings.Contains(err.Error(), "not found in the list of registered CSI drivers") {
		t.Error(err)
	}
}

func TestQuestionsAboutVolumesOfADriverThatHangsEndAndAreFew(t *testing.T) {
	b := measuring(t)
	asked := make(chan struct{}, 100)
	b.fault("NodeGetVolumeStats", func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ended := make(chan error)
	for range mostAsked + 3 {
		go func() {
			_, err := b.Usage(ctx, b.dir())
			ended <- err
		}()
	}
	for range mostAsked + 3 {
		if err := <-ended; err == nil {
			t.Error("a driver that hangs has answered")
		}
	}
	if n := len(asked); n > mostAsked {
		t.Errorf("it was asked %d times at once", n)
	}
}

func TestADriverIsNamedByWhatLiesBesideAVolumeAsLongAsItIsKnown(t *testing.T) {
	b := measuring(t)
	if got := b.DriverOf(b.dir()); got != driverOf {
		t.Errorf("it is %q", got)
	}
	if got := b.DriverOf(t.TempDir()); got != "" {
		t.Errorf("of a directory without a volume it is %q", got)
	}
	b.Deregister(b.plugin)
	if got := b.DriverOf(b.dir()); got != "" || b.Knows(driverOf) {
		t.Errorf("once it is gone it is %q", got)
	}
}
