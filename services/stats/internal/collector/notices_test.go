package collector

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/notice"
	"github.com/polylet/polylet/services/stats/internal/signal"
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
	case <-time.After(30 * time.Second):
		t.Error("the pods have come to their limit, and nothing was heard")
	}
}

func TestALevelIsArmedByWhatWasMeasuredAndNothingIsMeasuredForIt(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"memory.usage_in_bytes", "cgroup.event_control"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := newCollector(t, "/nowhere", disk.RuntimeUsage{})
	c.deps.Cgroups, c.deps.Meter = cgroup.New(false, map[string]string{"memory": dir}), nil
	n, err := notice.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	marks, now := []signal.Mark{{Signal: "memory.available", Quantity: 100}, {Signal: "nodefs.available", Percent: 5}}, []signal.Signal{{Name: "memory.available", Available: 300, Capacity: 1000, Idle: 30}}
	if !c.Arm(n, marks, now) {
		t.Error("it is not told of")
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.event_control"))
	if err != nil || !strings.HasSuffix(string(data), " 930") {
		t.Errorf("armed %q, %v", data, err)
	}
	if c.Arm(n, marks, nil) || c.Arm(n, []signal.Mark{{Signal: "memory.available", Quantity: 1000}}, now) {
		t.Error("what was not measured, or is crossed for good, is told of")
	}
}
