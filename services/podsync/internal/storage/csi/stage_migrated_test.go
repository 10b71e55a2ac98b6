package csi

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// isMigrated is what is counted of an operation that ended so, by the label migrated.
func isMigrated(t *testing.T, reg *prometheus.Registry, operation, status string) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "storage_operation_duration_seconds" && labels["operation_name"] == operation && labels["status"] == status {
				counted[labels["migrated"]] += series.GetHistogram().GetSampleCount()
			}
		}
	}
	return counted
}

// ofBeforeCSI has one pod given a volume of before CSI, as a device or not, and ends it; file
// is where it is kept what it is.
type ofBeforeCSI struct {
	*bench
	device, migrated bool
	file             string
}

func (o *ofBeforeCSI) setUp(t *testing.T) {
	t.Helper()
	r := o.claimOf("uid-1")
	o.file = filepath.Join(o.staging(), "vol_data.json")
	if o.device {
		r, o.file = o.deviceOf("uid-1"), o.devices("pv/data/vol_data.json")
	}
	r.Migrated = o.migrated
	if err := o.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// As a kubelet writes it, whose directories alone have another name.
func TestWhatLiesBesideAVolumeOfBeforeCSIHasTheNameByWhichPeopleKnowIt(t *testing.T) {
	b := newStaging(t, nil)
	r := b.claimOf("uid-1")
	r.Migrated, r.Called = true, "driver-dir/disk"
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if data, err := readVolumeData(r.Dir); err != nil || data.SpecVolID != r.Called {
		t.Errorf("%+v, %v", data, err)
	}
}

func (o *ofBeforeCSI) end(t *testing.T) {
	t.Helper()
	if o.device {
		o.unmap(t, "uid-1")
		return
	}
	if err := o.Teardown(t.Context(), volume.Remains{UID: "uid-1", Name: "pv", Dir: o.pvDir("uid-1")}); err != nil {
		t.Fatal(err)
	}
	o.Forget("uid-1")
}

// count has what is done from now on counted.
func (o *ofBeforeCSI) count(again bool, t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	o.counts = metrics.New(reg)
	if !again {
		o.deps.Metrics = o.counts
		return reg
	}
	o.Volumes.mu.Lock()
	o.Volumes.end() // else it goes on unstaging beside the next one
	o.Volumes.mu.Unlock()
	o.Volumes.work.Wait()
	o.Volumes = o.restarted(t)
	o.register(t)
	return reg
}

// TestThatAVolumeIsOfBeforeCSIIsKnownWhenItIsUnstaged, also by a podsync that has never seen a
// pod with it.
func TestThatAVolumeIsOfBeforeCSIIsKnownWhenItIsUnstaged(t *testing.T) {
	for _, operation := range []string{"unmount_device", "unmap_device"} {
		for name, c := range map[string]struct {
			migrated bool
			story    func(t *testing.T, o *ofBeforeCSI) *prometheus.Registry
		}{
			"at once": {true, func(t *testing.T, o *ofBeforeCSI) *prometheus.Registry {
				t.Helper()
				reg := o.count(false, t)
				o.setUp(t)
				o.end(t)
				return reg
			}},
			"after a restart": {true, func(t *testing.T, o *ofBeforeCSI) *prometheus.Registry {
				t.Helper()
				o.setUp(t)
				o.fault("NodeUnstageVolume", func(context.Context) error { return status.Error(codes.Internal, "not now") })
				o.end(t)
				reg := o.count(true, t)
				o.fault("NodeUnstageVolume", nil)
				return reg
			}},
			"of a pod that a kubelet has given it": {true, func(t *testing.T, o *ofBeforeCSI) *prometheus.Registry {
				t.Helper()
				o.setUp(t)
				text, err := os.ReadFile(o.file)
				if err == nil {
					err = os.WriteFile(o.file, bytes.Replace(text, []byte(`"migrated":"true",`), nil, 1), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				reg := o.count(true, t)
				o.setUp(t)
				o.end(t)
				return reg
			}},
			"of a driver's own": {false, func(t *testing.T, o *ofBeforeCSI) *prometheus.Registry {
				t.Helper()
				o.setUp(t)
				reg := o.count(true, t)
				o.end(t)
				return reg
			}},
		} {
			t.Run(operation+" "+name, func(t *testing.T) {
				o := &ofBeforeCSI{bench: newStaging(t, nil), device: operation == "unmap_device", migrated: c.migrated}
				reg := c.story(t, o)
				o.nothing(t)
				want := "false"
				if c.migrated {
					want = "true"
				}
				if got := isMigrated(t, reg, operation, "success"); len(got) != 1 || got[want] == 0 {
					t.Errorf("counted by migrated are %v, want %s", got, want)
				}
			})
		}
	}
}
