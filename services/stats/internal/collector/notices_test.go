package collector

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/disk"
)

func TestThePodsLimitIsHeardOfAndNotThatOfEachContainer(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, "kubepods", name), []byte("max 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "kubepods"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("memory.events")
	write("memory.events.local")
	c, _ := newCollector(t, "/nowhere", disk.RuntimeUsage{})
	c.deps.Cgroups = cgroup.New(true, map[string]string{"": dir})
	n := c.Notices(klog.Logger{})
	defer n.Close()
	write("memory.events")
	select {
	case <-n.Heard():
		t.Error("a container has come to its limit, and that was heard")
	case <-time.After(200 * time.Millisecond):
	}
	write("memory.events.local")
	select {
	case <-n.Heard():
	case <-time.After(10 * time.Second):
		t.Error("the pods have come to their limit, and nothing was heard")
	}
}
