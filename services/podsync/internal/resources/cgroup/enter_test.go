package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

func TestWhatLiesWithinACgroup(t *testing.T) {
	for _, c := range []struct {
		own, above string
		want       bool
	}{
		{"/kubelet", "/kubelet", true},
		{"/polylet.slice/polylet-podsync.service", "/polylet.slice", true},
		{"/kubelet2", "/kubelet", false},
		{"/", "/kubelet", false},
	} {
		if got := within(c.own, c.above); got != c.want {
			t.Errorf("%s within %s: %v", c.own, c.above, got)
		}
	}
}

func TestTheAgentsCgroupIsWhereItsProcessesAre(t *testing.T) {
	for _, c := range []struct{ own, configured, want string }{
		{"/kubelet", "/kubelet", "/kubelet"},
		{"/", "/kubelet", "/kubelet"},
		{"/", "", ""},
		{"/user.slice/session-1.scope", "", ""},
		{"/polylet.slice/polylet-stats.service", "", "/polylet.slice"},
		{"/polylet.slice/polylet-stats.service", "/system.slice/kubelet.service", "/polylet.slice"},
		{"/system.slice/polylet.service", "", "/system.slice/polylet.service"},
	} {
		if got := Agent(c.own, c.configured); got != c.want {
			t.Errorf("own %s, configured %q: %q, want %q", c.own, c.configured, got, c.want)
		}
	}
}

// TestAProcessEntersTheAgentsCgroup moves a process of its own on the machine's
// real cgroups.
func TestAProcessEntersTheAgentsCgroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	name := fmt.Sprintf("/polylet-enter-test-%d", os.Getpid())
	m, err := manager.New(&cgroups.Cgroup{Path: name, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		t.Skip(err)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
		if err := m.Destroy(); err != nil {
			t.Errorf("remove the test's cgroup: %v", err)
		}
	})
	for range 2 { // a second time changes nothing
		if err := Enter(sleeper.Process.Pid, name); err != nil {
			t.Fatal(err)
		}
	}
	list, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", sleeper.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{""}
	if !cgroups.IsCgroup2UnifiedMode() {
		names = []string{"cpu", "memory", "cpuset"}
	}
	for _, controller := range names {
		if list[controller] != name {
			t.Errorf("%q: the process is in %s; want %s", controller, list[controller], name)
		}
	}
	if own, err := Of(sleeper.Process.Pid); err != nil || own != name {
		t.Errorf("it is in %s, %v", own, err)
	}
}
