package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// handSlice writes what a service is handed, as its owner does.
func handSlice(t *testing.T, path, service string, generation uint64, args ...string) {
	t.Helper()
	l := loadedWith(t, args...)
	raw, err := json.Marshal(kubeletconfig.NewSlice(l, generation, configslice.Checksum(l.Fields(), service), false))
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, string(raw))
}

func TestEachFieldThatChangesInPlaceIsTakenByAllWhoUseIt(t *testing.T) {
	taken := map[string][]string{"podsync": slices.Concat(limitFields(), eventFields()), "nodestatus": eventFields()}
	for _, path := range configslice.InPlace() {
		owners, known := configslice.Owners(path)
		if !known || len(owners) == 0 || configslice.Fixed()[path] != "" {
			t.Errorf("%s is used by %v, or cannot change", path, owners)
		}
		for _, service := range owners {
			if !slices.Contains(slices.Concat(verbosityFields(), taken[service]), path) {
				t.Errorf("%s does not take %s", service, path)
			}
		}
	}
}

func TestAServiceTakesWhatItCanAndNothingInPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podsync", sliceFile)
	handSlice(t, path, "podsync", 1)
	loaded := loadedWith(t, "--config-slice="+path)
	ctx := withInPlace(t.Context(), "podsync", loaded)
	p := inPlaceOf(ctx)
	var files []int32
	var fails error
	sums := func() string { _, sum := loaded.Runs(); return sum }
	first := sums()

	handSlice(t, path, "podsync", 2, "--container-log-max-files=7")
	if p.takes(klog.Background()) || sums() != first {
		t.Error("something is taken that nobody takes yet")
	}
	p.add(func(next *kubeletconfig.Loaded) error {
		files = append(files, *next.Config.ContainerLogMaxFiles)
		return fails
	}, limitFields()...)
	if !p.takes(klog.Background()) || sums() == first || !slices.Equal(files, []int32{7}) {
		t.Errorf("it is not taken: %v", files)
	}
	if !p.takes(klog.Background()) || len(files) != 1 {
		t.Errorf("the same is taken twice: %v", files)
	}
	second := sums()
	handSlice(t, path, "podsync", 3, "--container-log-max-files=8", "--max-pods=9")
	if p.takes(klog.Background()) || len(files) != 1 || sums() != second {
		t.Errorf("a part is taken: %v", files)
	}
	handSlice(t, path, "podsync", 4, "--container-log-max-files=8")
	fails = errors.New("no")
	if p.takes(klog.Background()) || sums() != second {
		t.Error("what could not be taken is said to run")
	}
	fails = nil
	before, err := daemon.SetVerbosity(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = daemon.SetVerbosity(before) }()
	handSlice(t, path, "podsync", 5, "--container-log-max-files=6", "-v=3")
	if !p.takes(klog.Background()) || !slices.Equal(files, []int32{7, 8, 6}) || !klog.Background().V(3).Enabled() {
		t.Errorf("both: %v", files)
	}
	handSlice(t, path, "podsync", 6, "--container-log-max-files=6", "-v=3", "--volume-stats-agg-period=7s") // stats'
	if generation, _ := loaded.Current().Runs(); !p.takes(klog.Background()) || len(files) != 3 || generation != 6 {
		t.Errorf("another service's: %v", files)
	}
	if (*inPlace)(nil).takes(klog.Background()) {
		t.Error("nobody takes something")
	}
}

// TestAServiceUnderAManagerTakesWhatItCanAndEndsForTheRest: as polylet-stats.service does.
func TestAServiceUnderAManagerTakesWhatItCanAndEndsForTheRest(t *testing.T) {
	before, err := daemon.SetVerbosity(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = daemon.SetVerbosity(before) }()
	dir := t.TempDir()
	path := filepath.Join(dir, "stats", sliceFile)
	handSlice(t, path, "stats", 1)
	loaded := loadedWith(t, "--socket-dir="+dir, "--config-slice="+path, followSliceFlag)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runs, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- runSlice(withInPlace(ctx, "stats", loaded), "stats", loaded, func(ctx context.Context, _ *kubeletconfig.Loaded) error {
			close(runs)
			<-ctx.Done()
			return nil
		})
	}()
	<-runs
	handSlice(t, path, "stats", 2, "-v=2")
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) { // a real directory's events
		if generation, _ := loaded.Runs(); generation == 2 {
			break
		}
	}
	if !still(done) || !klog.Background().V(2).Enabled() {
		t.Fatal("it ends for what it can take")
	}
	handSlice(t, path, "stats", 3, "-v=2", "--volume-stats-agg-period=7s")
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Errorf("it ends with %v, %v", err, ctx.Err())
	}
}

// TestAServiceTakesWhatItCanWhenItIsAskedWithWhatItRuns: by whoever has handed it over.
func TestAServiceTakesWhatItCanWhenItIsAskedWithWhatItRuns(t *testing.T) {
	before, err := daemon.SetVerbosity(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = daemon.SetVerbosity(before) }()
	path := filepath.Join(t.TempDir(), "stats", sliceFile)
	handSlice(t, path, "stats", 1)
	loaded := loadedWith(t, "--config-slice="+path)
	asked := withConfiguration(withInPlace(t.Context(), "stats", loaded), loaded, daemon.Options{}).ConfigRuns
	handSlice(t, path, "stats", 2, "-v=2", "--volume-stats-agg-period=7s")
	if generation, _ := asked(); generation != 1 || klog.Background().V(2).Enabled() {
		t.Errorf("it runs with generation %d, for which it has to start again", generation)
	}
	handSlice(t, path, "stats", 3, "-v=2")
	if generation, _ := asked(); generation != 3 || !klog.Background().V(2).Enabled() {
		t.Errorf("it runs with generation %d", generation)
	}
}
