package collector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// By the runtime's figures, which are seconds old, another pod would go for a layer that
// has just filled the disk.
func TestLayersAreWeighedAnewForWhoWantsDisksMeasuredAnewAndWhoIsNotIsSaid(t *testing.T) {
	places, began := t.TempDir(), time.Now()
	fs, mounts := filepath.Join(places, "7", "fs"), filepath.Join(t.TempDir(), "mountinfo")
	if err := os.MkdirAll(fs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fs, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mounts, fmt.Appendf(nil, "90 30 0:50 / /run/c/hog/rootfs rw - overlay overlay rw,upperdir=%s\n", fs), 0o600); err != nil {
		t.Fatal(err)
	}
	old := disk.Usage{Time: began.Add(-10 * time.Second), Bytes: 5, Inodes: 1}
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{
		Images: []disk.Usage{{Mountpoint: places, Time: old.Time}}, Layers: map[string]disk.Usage{"hog": old, "other": old},
	})
	c.deps.Layers = disk.NewLayers(mounts, disk.TreesConfig{Period: time.Minute, Deadline: time.Second, Forget: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.deps.Directories.Run(ctx) })
	running.Go(func() { _ = c.deps.Layers.Run(ctx) })
	defer running.Wait()
	defer cancel()
	c.deps.Runtime.Renew(t.Context()) // Where layers lie is known.
	present := func(uid, container string) inventory.PresentPod {
		return inventory.PresentPod{
			Sandbox:    inventory.Sandbox{Pod: inventory.Pod{Namespace: "ns", Name: uid, UID: uid}},
			Containers: []inventory.Container{{ID: container, Name: container}},
		}
	}
	pods := []inventory.PresentPod{present("a", "hog"), present("b", "other"), present("c", "never heard of")}
	for _, asked := range []Asked{{RenewLayers: true}, {Renew: true, Since: began}, {Renew: true, Since: began.Add(-time.Minute)}, {Renew: true}} {
		out, err := c.disk(ctx, pods, asked)
		if err != nil || out.Layers["other"] != old {
			t.Fatalf("%+v, %v", out, err)
		}
		if got := out.Layers["hog"]; !asked.Renew && got != old || asked.Renew && (got.Bytes < 1<<20 || got.Time.Before(began)) {
			t.Errorf("%+v: %+v", asked, got)
		}
		want := []string{"b", "c"}
		switch {
		case !asked.Renew:
			want = nil
		case asked.Since.Before(old.Time) && !asked.Since.IsZero():
			want = []string{"c"}
		}
		if !slices.Equal(out.Unweighed, want) || len(out.Unmeasured) > 0 {
			t.Errorf("%+v: unweighed %v, unmeasured %v", asked, out.Unweighed, out.Unmeasured)
		}
	}
}

func TestWhoseDirectoriesThereWasNoTimeForIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCollector(t, "/proc", disk.RuntimeUsage{}) // Nobody measures.
		out, err := c.renewed(t.Context(), []inventory.PresentPod{pod()}, Asked{})
		if err != nil || !slices.Equal(out.Unmeasured, []string{"u"}) || !slices.Equal(out.Unweighed, []string{"u"}) {
			t.Errorf("%+v, %v", out, err)
		}
		if out, err := c.renewed(t.Context(), nil, Asked{Since: time.Now().Add(time.Hour)}); err != nil || len(out.Unmeasured) > 0 || len(out.Unweighed) > 0 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

func TestOnlyThePodsThatAreNamedAreMeasuredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCollector(t, "/proc", disk.RuntimeUsage{}) // Nobody measures.
		one, other := pod(), pod()
		other.Sandbox.Pod.UID = "v"
		for _, of := range [][]string{{"v"}, {"u"}, nil} {
			out, err := c.renewed(t.Context(), []inventory.PresentPod{one, other}, Asked{Of: of})
			want := of
			if of == nil {
				want = []string{"u", "v"}
			}
			if err != nil || !slices.Equal(out.Unmeasured, want) || len(out.Own["u"]) == 0 || len(out.Own["v"]) == 0 {
				t.Errorf("of %v: %+v, %v", of, out, err)
			}
		}
	})
}

func TestOfWhichPodsTheFiguresAreNotSureIsSaid(t *testing.T) {
	one, counts, slow := pod(), pod(), pod()
	counts.Sandbox.Pod.UID, counts.Volumes = "v", []inventory.Volume{{Name: "a"}, {Name: "b", Counted: true}}
	slow.Sandbox.Pod.UID, slow.Volumes = "w", []inventory.Volume{{Name: "a", HostPath: "/slow", Ephemeral: true}}
	got := unsure([]inventory.PresentPod{one, counts, slow}, map[string]disk.Measured{"/slow": {Slow: true}})
	if !slices.Equal(got, []string{"v", "w"}) {
		t.Error(got)
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCollector(t, "/proc", disk.RuntimeUsage{})
		out, err := c.disk(t.Context(), []inventory.PresentPod{one, counts}, Asked{})
		if err != nil || !slices.Equal(out.Unsure, []string{"v"}) {
			t.Errorf("%+v, %v", out, err)
		}
	})
}
