package stats

import (
	"errors"
	"fmt"
	"path"
	"time"
)

// Config is what stats is told of the node.
type Config struct {
	// NodeName is the name in /stats/summary.
	NodeName string
	// RootDir is the agent's root directory; its filesystem is nodefs.
	RootDir string
	// CgroupRoot is the cgroup that pods' cgroups lie under; "" or "/" is the
	// root of the hierarchy.
	CgroupRoot string
	// SystemdCgroups is whether cgroups carry systemd's names (kubepods.slice),
	// until podsync says which driver the runtime has.
	SystemdCgroups bool
	// KubeletCgroup, RuntimeCgroup and SystemCgroup are shown as the system
	// containers kubelet, runtime and misc; those that are empty are not shown.
	KubeletCgroup, RuntimeCgroup, SystemCgroup string
	// VolumePeriod is how old the size of a volume or a log directory may be;
	// 0 is one minute.
	VolumePeriod time.Duration
	// AskDrivers has volumes' drivers asked each VolumePeriod though nobody wants the
	// figures: podsync tells of volumes that are not well by what they answer.
	AskDrivers bool
	// MemoryNotices has the kernel tell when memory may be short.
	MemoryNotices bool
}

// podsCgroup is the cgroup of all pods, until podsync says where it is.
func (c Config) podsCgroup() string {
	name := "kubepods"
	if c.SystemdCgroups {
		name = "kubepods.slice"
	}
	return path.Join("/", c.CgroupRoot, name)
}

func (c Config) validate() error {
	if c.NodeName == "" {
		return errors.New("stats: the node has no name; set --hostname-override or the host's name")
	}
	if !path.IsAbs(c.RootDir) {
		return fmt.Errorf("stats: root directory %q is not an absolute path; set --root-dir", c.RootDir)
	}
	return nil
}
