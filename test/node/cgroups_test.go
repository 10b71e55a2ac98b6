package node_test

import "os"

// unified says whether the machine has cgroup v2 alone.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}
