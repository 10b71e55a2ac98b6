package volume

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

// namer knows one driver.
type namer struct{ *fakeDriver }

func (namer) DriverOf(string) string { return "csi.x" }

func (namer) Knows(driver string) bool { return driver == "csi.x" }

func TestOperationsAreCountedByDriverAndOnlyOfDriversThatThereAre(t *testing.T) {
	f := withCSI(t, namer{&fakeDriver{}})
	reg := prometheus.NewRegistry()
	f.set.deps.Metrics = metrics.New(reg)
	pod := podWith(csiVolume("v", "csi.x"), csiVolume("w", "made.up"), emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"kubernetes.io/csi:csi.x": 1, "kubernetes.io/csi": 1, "kubernetes.io/empty-dir": 1}
	if got := f.set.Wanted(); !maps.Equal(got, want) {
		t.Errorf("wanted are %v", got)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	got := operations(t, reg)
	for _, one := range []string{"volume_mount kubernetes.io/csi:csi.x", "volume_mount kubernetes.io/csi", "volume_unmount kubernetes.io/csi:csi.x", "volume_mount kubernetes.io/empty-dir"} {
		if got["false "+one] == 0 {
			t.Errorf("no %s in %v", one, got)
		}
	}
}

// operations are how often what was done with volumes was counted: migrated, name, plugin.
func operations(t *testing.T, reg *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			switch n := m.GetHistogram().GetSampleCount(); family.GetName() {
			case "storage_operation_duration_seconds":
				all[of["migrated"]+" "+of["operation_name"]+" "+of["volume_plugin"]] += n
			case "volume_operation_total_seconds":
				all[of["operation_name"]+" "+of["plugin_name"]] += n
				if m.GetHistogram().GetSampleSum() >= time.Hour.Seconds() {
					all["an hour's "+of["operation_name"]]++
				}
			}
		}
	}
	return all
}

// TestOperationsAreCalledAsTheKubeletCallsThem: a mount counts from when it was first wanted, and
// once, whatever is made of it anew; a device is mapped, and a volume of before CSI says so.
func TestOperationsAreCalledAsTheKubeletCallsThem(t *testing.T) {
	f, d := withAttacher(t)
	reg := prometheus.NewRegistry()
	f.set.deps.Metrics, f.set.deps.CSI = metrics.New(reg), namesOne{&expands{drives: d}}
	g := &grower{}
	f.set.deps.Growth = g
	f.bind("c", "pv", csiPV())
	f.bind("d", "dev", csiPV())
	block := v1.PersistentVolumeBlock
	f.claims.volumes["dev"].Spec.VolumeMode = &block
	old := v1.Volume{Name: "old", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}}
	pod := podWith(claimVolume("c", "c"), claimVolume("d", "d"), old)
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == "d" })
	c.VolumeDevices = []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/x"}}
	d.attach = errors.New("not yet")
	if err := f.set.Setup(t.Context(), pod); err == nil {
		t.Fatal("it is set up")
	}
	f.set.state("uid-1").since["c"] = time.Now().Add(-time.Hour)
	d.attach = nil
	for range 2 {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.asked[0].Grow(t.Context(), resource.MustParse("3Gi")); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	got := operations(t, reg)
	for one, want := range map[string]uint64{
		"overall_volume_mount kubernetes.io/csi:d": 1, "overall_volume_mount kubernetes.io/csi:ebs.csi.aws.com": 1, "an hour's overall_volume_mount": 1, "false volume_fs_resize kubernetes.io/csi:csi.x": 1,
		"false volume_unmount kubernetes.io/csi:csi.x": 1, "true volume_unmount kubernetes.io/csi:csi.x": 1, "false unmap_volume kubernetes.io/csi:csi.x": 1,
	} {
		if got[one] != want {
			t.Errorf("%s: %d, want %d", one, got[one], want)
		}
	}
	for _, one := range []string{"true volume_mount kubernetes.io/csi:ebs.csi.aws.com", "false map_volume kubernetes.io/csi:d"} {
		if got[one] == 0 {
			t.Errorf("no %s in %v", one, got)
		}
	}
}

// TestAMountThatFailsIsCountedForWhoWasToMakeIt: nothing lies anywhere that would say who that is.
func TestAMountThatFailsIsCountedForWhoWasToMakeIt(t *testing.T) {
	f, d := withAttacher(t)
	reg := prometheus.NewRegistry()
	f.set.deps.Metrics, f.set.deps.CSI = metrics.New(reg), namesOne{&expands{drives: d}}
	f.bind("c", "pv", csiPV())
	f.bind("l", "disk", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: filepath.Join(t.TempDir(), "none")}})
	old := v1.Volume{Name: "old", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}}
	d.set = errors.New("broken")
	if err := f.set.Setup(t.Context(), podWith(claimVolume("c", "c"), claimVolume("l", "l"), old)); err == nil {
		t.Fatal("it is set up")
	}
	want := map[string]uint64{
		"false volume_mount kubernetes.io/csi:d": 1, "true volume_mount kubernetes.io/csi:ebs.csi.aws.com": 1, "false volume_mount kubernetes.io/local-volume": 1,
	}
	if got := operations(t, reg); !maps.Equal(got, want) {
		t.Errorf("counted are %v, want %v", got, want)
	}
}

// namesOne is expands that knows one driver.
type namesOne struct{ *expands }

func (namesOne) DriverOf(string) string { return "csi.x" }

func (namesOne) Knows(string) bool { return true }
