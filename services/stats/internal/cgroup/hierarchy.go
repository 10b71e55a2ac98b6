// Package cgroup reads control groups, v1 and v2, into cAdvisor's model.
//
// It owns the files below the cgroup mounts and nothing else: it keeps no
// state between calls, starts nothing, and must never write.
//
// cAdvisor's own libcontainer handler reads some thirty files per cgroup with
// no choice between them, about 200 µs and 87 kB of garbage each time; here
// every caller says what it needs, and the common case (CPU and memory) is
// three files. A test holds the two to the same values.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/libcontainer"
	"github.com/opencontainers/cgroups"
)

// Hierarchy is where the controllers are mounted. Safe for concurrent use.
type Hierarchy struct {
	unified bool
	mounts  map[string]string
}

// Detect finds the mounts of this machine.
func Detect() (*Hierarchy, error) {
	mounts, err := libcontainer.GetCgroupSubsystems(container.AllMetrics)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup mounts in /proc/self/mountinfo (are cgroups mounted at /sys/fs/cgroup?): %w", err)
	}
	return New(cgroups.IsCgroup2UnifiedMode(), mounts), nil
}

// New returns a Hierarchy with these mounts: by controller for v1, one entry
// under "" for v2.
func New(unified bool, mounts map[string]string) *Hierarchy {
	return &Hierarchy{unified: unified, mounts: mounts}
}

// Unified reports whether this is cgroup v2.
func (h *Hierarchy) Unified() bool { return h.unified }

// Dir returns the directory of a cgroup for a controller; empty when the
// controller is not mounted.
func (h *Hierarchy) Dir(controller, name string) string {
	if h.unified {
		controller = ""
	}
	mount, ok := h.mounts[controller]
	if !ok {
		return ""
	}
	return path.Join(mount, name)
}

// treeDir is the hierarchy whose directories say which cgroups there are.
func (h *Hierarchy) treeDir(name string) string {
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids"} {
		if dir := h.Dir(controller, name); dir != "" {
			return dir
		}
	}
	return ""
}

// Exists reports whether there is such a cgroup.
func (h *Hierarchy) Exists(name string) bool {
	_, err := os.Stat(h.treeDir(name))
	return err == nil
}

// Walk returns the cgroup and all below it, parents first, in name order. It
// does not go below those for which leaf returns true. A cgroup that is not
// there is an empty list.
func (h *Hierarchy) Walk(name string, leaf func(name string) bool) ([]string, error) {
	var out []string
	var visit func(name string) error
	visit = func(name string) error {
		entries, err := readSubdirectories(h.treeDir(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the cgroups below %s: %w", name, err)
		}
		out = append(out, name)
		if leaf != nil && leaf(name) {
			return nil
		}
		for _, entry := range entries {
			if err := visit(path.Join(name, entry)); err != nil {
				return err
			}
		}
		return nil
	}
	if h.treeDir(name) == "" {
		return nil, errors.New("none of the memory, cpu, cpuacct and pids controllers is mounted")
	}
	return out, visit(name)
}

// readSubdirectories lists the directories in dir. A cgroup directory's link
// count is two more than its children on v1, so leaves cost one stat.
func readSubdirectories(dir string) ([]string, error) {
	if links, err := linkCount(dir); err != nil {
		return nil, err
	} else if links == 2 {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, entry := range entries {
		if entry.IsDir() {
			out = append(out, entry.Name())
		}
	}
	sort.Strings(out)
	return out, nil
}

// ContainerID returns the part of a cgroup's name that would be a container's
// id: the last element without a runtime's prefix and systemd's suffix
// (cri-containerd-<id>.scope, crio-<id>, <prefix>:<id>).
func ContainerID(name string) string {
	base := strings.TrimSuffix(path.Base(name), ".scope")
	if i := strings.LastIndexAny(base, "-:"); i >= 0 && isID(base[i+1:]) {
		return base[i+1:]
	}
	return base
}

// LooksLikeContainer reports whether the last element holds a 64-digit id, as
// all runtimes use.
func LooksLikeContainer(name string) bool { return isID(ContainerID(name)) }

func isID(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// PodUID returns the UID in a pod cgroup's last element, pod<uid> or
// kubepods-…-pod<uid with _>.slice; empty when it is not one.
func PodUID(name string) string {
	base := path.Base(name)
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		i := strings.LastIndex(slice, "-pod")
		if i < 0 {
			return ""
		}
		return strings.ReplaceAll(slice[i+len("-pod"):], "_", "-")
	}
	uid, ok := strings.CutPrefix(base, "pod")
	if !ok {
		return ""
	}
	return uid
}
