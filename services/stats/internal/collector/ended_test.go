package collector

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

// crashed has a pod whose only container has ended, and will be started again, and one
// without a sandbox; layers is what the runtime says.
func crashed(t *testing.T, layers map[string]disk.Usage) *Collector {
	t.Helper()
	place, scratch := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(scratch, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c, names := newCollector(t, "/proc", disk.RuntimeUsage{
		Images: []disk.Usage{{Mountpoint: place}}, Containers: []disk.Usage{{Mountpoint: place}}, Layers: layers,
	})
	filler, bare := inventory.Pod{Namespace: "ns", Name: "filler", UID: "u"}, inventory.Pod{Namespace: "ns", Name: "no-sandbox", UID: "v"}
	names.Apply(inventory.Change{
		Snapshot:  true,
		Sandboxes: []inventory.Sandbox{{ID: "s", Pod: filler, Ready: true}},
		Containers: []inventory.Container{
			{ID: "older", SandboxID: "s", Pod: filler, Name: "app", Ended: true},
			{ID: "dead", SandboxID: "s", Pod: filler, Name: "app", Attempt: 1, Ended: true, LogDir: scratch},
		},
		Volumes: []inventory.PodVolumes{{Pod: bare, Volumes: []inventory.Volume{{Name: "scratch", HostPath: scratch, Ephemeral: true}}}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.deps.Directories.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	c.deps.Runtime.Renew(ctx)
	return c
}

func ofPod(s *statsapi.Summary, uid string) *statsapi.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.UID == uid {
			return &s.Pods[i]
		}
	}
	return nil
}

// A container fills its writable layer and crashes. Until its back-off is over nothing of
// the pod runs, and the layer stays; another would be chosen for it.
func TestWhatACrashedContainerHasLeftCountsForEvictionsAndIsNotShown(t *testing.T) {
	weighed := disk.Usage{Time: time.Now().Add(time.Hour), Bytes: 300 << 20, Inodes: 2}
	c := crashed(t, map[string]disk.Usage{"dead": weighed, "older": weighed})
	for _, asked := range []Asked{{Ended: true}, {Ended: true, RenewLayers: true}, {Ended: true, Renew: true}} {
		facts, err := c.Summary(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		s := summary.Build(facts)
		filler, bare := ofPod(s, "u"), ofPod(s, "v")
		if filler == nil || bare == nil || len(filler.Containers) != 2 {
			t.Fatalf("%+v: %+v", asked, s.Pods)
		}
		app, older := filler.Containers[0], filler.Containers[1]
		if app.Name != "app" || *app.Rootfs.UsedBytes != weighed.Bytes || *app.Logs.UsedBytes < 1<<20 || app.Memory != nil {
			t.Errorf("%+v: %+v", asked, app)
		}
		if older.Name != "" || *older.Rootfs.UsedBytes != weighed.Bytes || older.Logs != nil {
			t.Errorf("%+v: %+v", asked, older)
		}
		if n := *filler.EphemeralStorage.UsedBytes; n < 301<<20 || n > 310<<20 {
			t.Errorf("%+v: the pod has %d, without what counts for no limit", asked, n)
		}
		if len(bare.VolumeStats) != 1 || *bare.VolumeStats[0].UsedBytes < 1<<20 || bare.ProcessStats != nil {
			t.Errorf("%+v: %+v", asked, bare)
		}
		if len(facts.Disk.Unweighed)+len(facts.Disk.Unmeasured) > 0 {
			t.Errorf("%+v: unweighed %v, unmeasured %v", asked, facts.Disk.Unweighed, facts.Disk.Unmeasured)
		}
	}
	for _, asked := range []Asked{{}, {RenewLayers: true}, {Renew: true}, {Ended: true, OnlyCPUAndMemory: true}} {
		facts, err := c.Summary(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		if s := summary.Build(facts); len(s.Pods) != 1 || len(s.Pods[0].Containers) > 0 {
			t.Errorf("%+v: what the kubelet does not show is shown: %+v", asked, s.Pods)
		}
	}
}

// The runtime weighs layers every ten seconds. What was weighed after a container ended is
// as new as can be; else each pod with an init container would be waited for.
func TestALayerIsWeighedWhenItWasSinceItsContainerEndedAndElseItsPodIsSaidToHaveMore(t *testing.T) {
	for name, test := range map[string]struct {
		dead time.Duration
		want []string
	}{
		"since its end":  {0, nil},
		"before its end": {-time.Nanosecond, []string{"u"}},
	} {
		layers := map[string]disk.Usage{"older": {Time: time.Now().Add(time.Hour)}}
		c := crashed(t, layers)
		layers["dead"] = disk.Usage{Time: c.deps.Names.View().Containers["dead"].Over.Add(test.dead), Bytes: 5}
		facts, err := c.Summary(t.Context(), Asked{Ended: true, Renew: true})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(facts.Disk.Unweighed, test.want) {
			t.Errorf("%s: unweighed %v", name, facts.Disk.Unweighed)
		}
	}
	c := crashed(t, nil)
	facts, err := c.Summary(t.Context(), Asked{Ended: true, Renew: true})
	if err != nil || !slices.Equal(facts.Disk.Unweighed, []string{"u"}) {
		t.Errorf("that the runtime says nothing of: %+v, %v", facts.Disk, err)
	}
}

// CRI-O lists no container that has ended.
func TestALayerThatTheRuntimeNeverListsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crashed(t, nil)
		for _, want := range [][]string{{"u"}, nil} { // at once, and a minute later
			facts, err := c.Summary(t.Context(), Asked{Ended: true, Renew: true})
			if err != nil || !slices.Equal(facts.Disk.Unweighed, want) {
				t.Errorf("%+v, %v, want %v", facts.Disk, err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Of pods that have ended long ago there may be many.
func TestNoDirectoriesAreMeasuredOfAPodOfWhichContainersAloneAreLeft(t *testing.T) {
	c := crashed(t, nil)
	p := inventory.PresentPod{Sandbox: inventory.Sandbox{Pod: inventory.Pod{UID: "w"}}, Ended: []inventory.Container{{Name: "done", LogDir: "/logs"}}}
	if dirs := append(directories([]inventory.PresentPod{p}), c.own(p)...); len(dirs) > 0 {
		t.Errorf("%v", dirs)
	}
	p.Volumes = []inventory.Volume{{Name: "scratch", HostPath: "/scratch"}}
	if dirs := append(directories([]inventory.PresentPod{p}), c.own(p)...); len(dirs) != 5 {
		t.Errorf("with a volume: %v", dirs)
	}
}
