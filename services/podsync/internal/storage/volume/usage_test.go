package volume

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// meter is a Driver that says how full its volumes are.
type meter struct {
	Driver
	asked []string
}

func (m *meter) Usage(_ context.Context, dir string) (Usage, error) {
	m.asked = append(m.asked, dir)
	return Usage{Driver: "csi.x", Used: 7, Condition: &Condition{Abnormal: true, Message: "worn out"}}, nil
}

func TestADriverIsAskedAboutItsVolumesAndNoOthers(t *testing.T) {
	m := &meter{Driver: &fakeDriver{}}
	f := withCSI(t, m)
	f.set.deps.Events = f.events
	if err := f.set.Setup(t.Context(), podWith(csiVolume("v", "csi.x"), emptyDirVolume("e"))); err != nil {
		t.Fatal(err)
	}
	if list := f.set.Volumes("uid-1"); len(list) != 2 || !list[0].Driven || list[0].Ephemeral || list[1].Driven {
		t.Errorf("shown are %+v", list)
	}
	got, err := f.set.Usage(t.Context(), "uid-1", "v")
	dir := filepath.Join(f.root, "pods", "uid-1", "volumes", "kubernetes.io~csi", "v")
	if err != nil || got.Used != 7 || got.Condition != nil || !slices.Equal(m.asked, []string{dir}) || len(f.events.all()) != 0 {
		t.Errorf("%+v, %v; asked %v, events %v", got, err, m.asked, f.events.all())
	}
	for _, name := range []string{"e", "absent"} {
		if _, err := f.set.Usage(t.Context(), "uid-1", name); !errors.Is(err, ErrNotDriven) {
			t.Errorf("of %s: %v", name, err)
		}
	}
}

// metered are CSI drivers that say how full their volumes are.
type metered struct {
	*drives
	by *meter
}

func (m metered) Usage(ctx context.Context, dir string) (Usage, error) { return m.by.Usage(ctx, dir) }

// TestADriverIsAskedAboutItsDevicesByTheirLinks: there is no directory of the pod's with it.
func TestADriverIsAskedAboutItsDevicesByTheirLinks(t *testing.T) {
	f, d := withAttacher(t)
	m := &meter{}
	f.set.deps.CSI = metered{d, m}
	block := v1.PersistentVolumeBlock
	f.bind("c", "pv", csiPV()).Spec.VolumeMode = &block
	if err := f.set.Setup(t.Context(), usesDevice()); err != nil {
		t.Fatal(err)
	}
	if list := f.set.Volumes("uid-1"); len(list) != 1 || !list[0].Driven || list[0].PVCName != "c" {
		t.Errorf("shown are %+v", list)
	}
	link := filepath.Join(f.root, "pods/uid-1/volumeDevices/kubernetes.io~csi/pv")
	if got, err := f.set.Usage(t.Context(), "uid-1", "v"); err != nil || got.Used != 7 || !slices.Equal(m.asked, []string{link}) {
		t.Errorf("%+v, %v; asked %v", got, err, m.asked)
	}
}

func TestAVolumeThatIsNotWellIsAnEventOfItsPodWhenTheGateIsOn(t *testing.T) {
	f := withCSI(t, &meter{Driver: &fakeDriver{}})
	f.set.deps.Events, f.set.cfg.Health = f.events, true
	if err := f.set.Setup(t.Context(), podWith(csiVolume("v", "csi.x"))); err != nil {
		t.Fatal(err)
	}
	got, err := f.set.Usage(t.Context(), "uid-1", "v")
	if err != nil || got.Condition == nil || !got.Condition.Abnormal {
		t.Errorf("%+v, %v", got, err)
	}
	if all := f.events.all(); !slices.Equal(all, []string{"p: VolumeConditionAbnormal: Volume v: worn out"}) {
		t.Errorf("the events are %v", all)
	}
	f.set.cfg.Health = false
	if got, err := f.set.Usage(t.Context(), "uid-1", "v"); err != nil || got.Condition != nil || len(f.events.all()) != 1 {
		t.Errorf("with the gate off: %+v, %v, events %v", got, err, f.events.all())
	}
}

func TestADriverThatCannotMeasureIsSaidToBeOne(t *testing.T) {
	f := withCSI(t, &fakeDriver{})
	if err := f.set.Setup(t.Context(), podWith(csiVolume("v", "csi.x"))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.Usage(t.Context(), "uid-1", "v"); !errors.Is(err, ErrNoUsage) {
		t.Error(err)
	}
}

// TestAServerIsAskedHowFullItsDirectoryIs: also one that a claim is bound to.
func TestAServerIsAskedHowFullItsDirectoryIs(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", nfsPV("s", "/claimed"))
	pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), claimVolume("c", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if list := f.set.Volumes("uid-1"); len(list) != 2 || !list[0].Driven || list[0].PVCName != "" || !list[1].Driven || list[1].PVCName != "c" || list[1].Ephemeral {
		t.Errorf("shown are %+v", list)
	}
	want := Usage{Driver: "kubernetes.io/nfs", Available: 5, Capacity: 10, Used: 4, Inodes: 3, InodesFree: 1, InodesUsed: 2}
	for _, name := range []string{"v", "c"} {
		if got, err := f.set.Usage(t.Context(), "uid-1", name); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	silent := errors.New("its server does not answer")
	f.mounts.Fail = func(call, _ string) error {
		if call == "fullness" {
			return silent
		}
		return nil
	}
	if _, err := f.set.Usage(t.Context(), "uid-1", "v"); !errors.Is(err, silent) {
		t.Error(err)
	}
}
