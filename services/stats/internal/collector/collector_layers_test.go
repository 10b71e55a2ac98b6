package collector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// By the runtime's figures, which are seconds old, another pod would go for a layer that
// has just filled the disk.
func TestLayersAreWeighedAnewForWhoWantsDisksMeasuredAnew(t *testing.T) {
	places, said := t.TempDir(), time.Now().Add(-10*time.Second)
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
	old := disk.Usage{Time: said, Bytes: 5, Inodes: 1}
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{
		Images: []disk.Usage{{Mountpoint: places, Time: said}}, Layers: map[string]disk.Usage{"hog": old, "other": old},
	})
	c.deps.Layers = &disk.Layers{Mounts: mounts}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.deps.Directories.Run(ctx) }()
	pods := []inventory.PresentPod{{
		Sandbox:    inventory.Sandbox{Pod: inventory.Pod{Namespace: "ns", Name: "pod", UID: "u"}},
		Containers: []inventory.Container{{ID: "hog", Name: "hog"}, {ID: "other", Name: "other"}},
	}}
	began := time.Now()
	for _, renew := range []bool{false, true} {
		out, err := c.disk(ctx, pods, Asked{Renew: renew, RenewLayers: !renew})
		if err != nil || out.Layers["other"] != old {
			t.Fatalf("%+v, %v", out, err)
		}
		if got := out.Layers["hog"]; !renew && got != old || renew && (got.Bytes < 1<<20 || got.Time.Before(began)) {
			t.Errorf("anew: %t, %+v", renew, got)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
