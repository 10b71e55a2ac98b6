package volume

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, family := range families {
		if family.GetName() != "storage_operation_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			got[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[3].GetValue()] = true
		}
	}
	for _, one := range []string{"volume_mount kubernetes.io/csi:csi.x", "volume_mount kubernetes.io/csi", "volume_unmount kubernetes.io/csi:csi.x", "volume_mount kubernetes.io/empty-dir"} {
		if !got[one] {
			t.Errorf("no %s in %v", one, got)
		}
	}
}
