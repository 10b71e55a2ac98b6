package collector

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

func TestAClaimThatTwoPodsShareIsOneSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, names := newCollector(t, "/proc", disk.RuntimeUsage{})
		dir := t.TempDir()
		var change inventory.Change
		for _, uid := range []string{"a", "b"} {
			pod := inventory.Pod{Namespace: "ns", Name: uid, UID: uid}
			change.Sandboxes = append(change.Sandboxes, inventory.Sandbox{ID: "s" + uid, Pod: pod, Ready: true})
			change.Containers = append(change.Containers, inventory.Container{ID: "c" + uid, SandboxID: "s" + uid, Pod: pod, Name: "web", Running: true, LogDir: t.TempDir()})
			change.Volumes = append(change.Volumes, inventory.PodVolumes{Pod: pod, Volumes: []inventory.Volume{{Name: "data", HostPath: dir, PVC: "claim"}, {Name: "scratch", HostPath: dir, Ephemeral: true}}})
		}
		names.Apply(change)
		m := NewMetrics(c)
		if n := testutil.CollectAndCount(m); n != 2 {
			t.Errorf("%d series before anything is measured, want the node's 2: a scrape waits for no directory", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.deps.Directories.Run(ctx) }()
		synctest.Wait()
		for series, want := range map[string]int{"kubelet_volume_stats_capacity_bytes": 1, "kubelet_container_log_filesystem_used_bytes": 2} {
			if n := testutil.CollectAndCount(m, series); n != want {
				t.Errorf("%d series of %s, want %d", n, series, want)
			}
		}
		const version = "# HELP kubelet_cgroup_version [ALPHA] Version of the cgroups of this node, 1 or 2.\n# TYPE kubelet_cgroup_version gauge\nkubelet_cgroup_version 2\n"
		if err := testutil.CollectAndCompare(m, strings.NewReader(version), "kubelet_cgroup_version"); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
}

func TestAClaimThatItsDriverMeasuresIsShownAsTheDriverSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, names := newCollector(t, "/proc", disk.RuntimeUsage{})
		pod := inventory.Pod{Namespace: "ns", Name: "p", UID: "u"}
		names.Apply(inventory.Change{
			Sandboxes: []inventory.Sandbox{{ID: "s", Pod: pod, Ready: true}},
			Volumes:   []inventory.PodVolumes{{Pod: pod, Volumes: []inventory.Volume{{Name: "data", PVC: "claim", Driven: true}, {Name: "inline", Driven: true}}}},
		})
		m := NewMetrics(c)
		testutil.CollectAndCount(m)
		synctest.Wait()
		for series, said := range map[string]string{
			"used_bytes": "Bytes that are taken in the volume.|5", "capacity_bytes": "Size of the volume in bytes.|10",
			"health_status_abnormal": "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy|1",
		} {
			series = "kubelet_volume_stats_" + series
			help, value, _ := strings.Cut(said, "|")
			want := "# HELP " + series + " [ALPHA] " + help + "\n# TYPE " + series + " gauge\n" + series + `{namespace="ns",persistentvolumeclaim="claim"} ` + value + "\n"
			if err := testutil.CollectAndCompare(m, strings.NewReader(want), series); err != nil {
				t.Error(err)
			}
		}
	})
}
