package suite

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/test/harness/programs"
)

// DescribeMachine says what a result depends on besides the agent.
func DescribeMachine() string {
	kernel, cgroups := "unknown kernel", "cgroup v1"
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		kernel = "Linux " + unix.ByteSliceToString(name.Release[:])
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroups = "cgroup v2"
	}
	return fmt.Sprintf("%d processors, %s, %s, containerd %s", runtime.NumCPU(), kernel, cgroups, programs.Containerd().Version)
}
