package collector

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/polylet/polylet/services/stats/internal/disk"
)

func TestAWalkIsCountedBesideAQuestionToTheFilesystem(t *testing.T) {
	w, err := NewWalks(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.Took(disk.Directory{}, time.Second)
	if n := testutil.CollectAndCount(w.took); n != 1 {
		t.Errorf("%d series, want 1", n)
	}
	w.Took(disk.Directory{FilesystemOnly: true}, time.Second)
	if n := testutil.CollectAndCount(w.took); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}

func TestAQuestionForAQuotaHasTheKubeletsNameForIt(t *testing.T) {
	w, err := NewWalks(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Took(disk.Directory{Counted: disk.Volume{PodUID: "u", Name: "v"}}, time.Second)
	if n := testutil.CollectAndCount(w.took.WithLabelValues("fsquota").(prometheus.Histogram)); n != 1 || testutil.CollectAndCount(w.took) != 1 {
		t.Errorf("%d series of it, %d in all", n, testutil.CollectAndCount(w.took))
	}
}

func TestWalksNeedNoRegistryAndStandInOneOnce(t *testing.T) {
	w, err := NewWalks(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Took(disk.Directory{}, time.Second)
	registry := prometheus.NewRegistry()
	if err := registry.Register(w.took); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWalks(registry); err == nil {
		t.Error("the series are registered twice")
	}
}
