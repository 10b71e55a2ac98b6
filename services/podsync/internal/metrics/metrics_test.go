package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// observed is how often a histogram was told something.
func observed(t *testing.T, h prometheus.Metric) uint64 {
	t.Helper()
	var out dto.Metric
	if err := h.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram().GetSampleCount()
}

func TestTheFirstLookHasNoInterval(t *testing.T) {
	m := New(prometheus.NewRegistry())
	m.Relisted(time.Second, 0)
	m.Relisted(time.Second, time.Minute)
	if looks, intervals := observed(t, m.relist), observed(t, m.interval); looks != 2 || intervals != 1 {
		t.Errorf("%d looks and %d intervals, want 2 and 1", looks, intervals)
	}
}

func TestAStreamThatNeverStoodIsAFailureAndHasNoDuration(t *testing.T) {
	m := New(prometheus.NewRegistry())
	m.EventsEnded(false, time.Second)
	for range 2 {
		m.EventsOpened()
		m.EventsEnded(true, time.Second)
	}
	if failed, opened := testutil.ToFloat64(m.events.failed), testutil.ToFloat64(m.events.connected); failed != 1 || opened != 2 {
		t.Errorf("%g failed and %g stood, want 1 and 2", failed, opened)
	}
	if n := observed(t, m.events.latency); n != 2 {
		t.Errorf("%d durations, want 2", n)
	}
}

// TestAMountIsCalledAsTheKubeletCallsItFromWhenItWasWanted: volume_operation_total_seconds has one
// operation in Kubernetes 1.36, and unmounts are not in it.
func TestAMountIsCalledAsTheKubeletCallsItFromWhenItWasWanted(t *testing.T) {
	m := New(prometheus.NewRegistry())
	const operation, plugin = "volume_mount", "kubernetes.io/empty-dir"
	m.Volume(operation, plugin, false, time.Now(), errors.New("no"))
	m.Volume(operation, plugin, false, time.Now(), nil)
	m.Volume("volume_unmount", plugin, true, time.Now(), nil)
	if n := testutil.CollectAndCount(m.storageTotal); n != 0 {
		t.Errorf("attempts are counted as %d mounts", n)
	}
	m.VolumeMounted(plugin, time.Now())
	total, ok := m.storageTotal.WithLabelValues("overall_volume_mount", plugin).(prometheus.Metric)
	if !ok || observed(t, total) != 1 {
		t.Error("the mount is not counted")
	}
	for status, want := range map[string]uint64{"success": 1, "fail-unknown": 1} {
		h, ok := m.storage.WithLabelValues("false", operation, status, plugin).(prometheus.Metric)
		if !ok || observed(t, h) != want {
			t.Errorf("attempts with %s are not %d", status, want)
		}
	}
	h, ok := m.storage.WithLabelValues("true", "volume_unmount", "success", plugin).(prometheus.Metric)
	if !ok || observed(t, h) != 1 {
		t.Error("that of a volume of before CSI is not counted as one")
	}
}

func TestWithoutMetricsNothingIsCounted(*testing.T) {
	var m *Metrics
	m.Relisted(time.Second, time.Second)
	m.EventsOpened()
	m.EventsEnded(true, time.Second)
	m.EventsEnded(false, time.Second)
	m.StatusWritten(time.Second)
	m.StatusRefused("field")
	m.Cgroup("create", time.Now())
	m.Volume("volume_mount", "plugin", false, time.Now(), nil)
	m.VolumeMounted("plugin", time.Now())
	m.LosesSupport("1.40")
	m.FellBackToHTTP()
	m.SleepCutShort()
	m.MemoryProtected(1, 2)
}

func TestCallsOfCSIDriversAreCountedUntilADriverIsForgotten(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	m.CSI("a", "/csi.v1.Node/NodePublishVolume", "OK", false, time.Second)
	m.CSI("a", "/csi.v1.Node/NodePublishVolume", "Internal", true, time.Second)
	m.CSI("b", "/csi.v1.Node/NodeGetInfo", "OK", false, time.Second)
	if n := testutil.CollectAndCount(m.csi, "csi_operations_seconds"); n != 3 {
		t.Errorf("%d series", n)
	}
	m.ForgetCSI("a")
	if n := testutil.CollectAndCount(m.csi, "csi_operations_seconds"); n != 1 {
		t.Errorf("%d series are left of the other driver", n)
	}
	(*Metrics)(nil).CSI("a", "x", "OK", false, 0)
	(*Metrics)(nil).ForgetCSI("a")
}
