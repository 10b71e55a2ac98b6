package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Enter moves a process into a cgroup of the whole machine, and makes that when
// it is not there. One that is in it already, or below, stays where it is, and so
// does one of a systemd unit: systemd counts and limits it there, and would lose
// it.
func Enter(pid int, name string) error {
	own, err := Of(pid)
	if err != nil {
		return err
	}
	name = path.Join("/", name)
	if name == "/" || within(own, name) || strings.HasSuffix(own, ".service") {
		return nil
	}
	if host, err := onHost(pid); err != nil || !host {
		return err
	}
	m, err := manager.New(&cgroups.Cgroup{Path: name, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", name, err)
	}
	if err := m.Apply(pid); err != nil {
		return fmt.Errorf("move process %d from cgroup %s to %s: %w", pid, own, name, err)
	}
	return nil
}

// Of is the cgroup of a process: systemd's on cgroup v1 where systemd runs, else
// that of cpu.
func Of(pid int) (string, error) {
	list, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	controllers := []string{""}
	if !cgroups.IsCgroup2UnifiedMode() {
		controllers = []string{"cpu"}
		// Without systemd the hierarchy may be there, and nobody uses it.
		if list["name=systemd"] != "/" {
			controllers = []string{"name=systemd", "cpu"}
		}
	}
	for _, c := range controllers {
		if own, ok := list[c]; ok {
			return own, nil
		}
	}
	return "", fmt.Errorf("/proc/%d/cgroup names no cgroup of %q", pid, controllers)
}

// Agent is the cgroup that stands for the node's agent, one of whose processes is
// in own.
func Agent(own, configured string) string {
	if configured != "" && within(own, path.Join("/", configured)) || !strings.HasSuffix(own, ".service") {
		return configured
	}
	if slice := path.Dir(own); strings.HasSuffix(slice, "polylet.slice") {
		return slice
	}
	return own
}

// within says whether a cgroup is above or lies below it.
func within(own, above string) bool { return own == above || strings.HasPrefix(own, above+"/") }

// firstNamespace is the namespace of cgroups that the kernel starts with; its
// number is fixed.
const firstNamespace = "cgroup:[4026531835]"

// onHost says whether a process sees the cgroups of the whole machine; one in a
// container would make them inside of its own.
func onHost(pid int) (bool, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/cgroup", pid))
	if errors.Is(err, fs.ErrNotExist) { // before there were namespaces of cgroups
		return true, nil
	}
	return own == firstNamespace, err
}
