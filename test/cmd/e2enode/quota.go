package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// leastQuota is the kernel's least of a processor, a hundredth, which is what a limit
	// of 1m comes to, and noQuota none.
	leastQuota = "1000 100000"
	noQuota    = "max 100000"
	// podsCgroup is where systemd has the pods of a machine.
	podsCgroup = "/sys/fs/cgroup/kubepods.slice"
	// liftEvery is short beside what runc takes to start a container there.
	liftEvery = 500 * time.Millisecond
)

// liftQuotas lifts what is least for as long as the machine is up. The suite asks of each
// test with a pod limited to 1m first whether the node has cgroup v2, and with a hundredth
// of an emulated processor that takes runc four minutes; no test looks at that limit.
func liftQuotas() {
	for range time.Tick(liftEvery) {
		if err := liftLeast(podsCgroup); err != nil {
			say("lift the least quotas: %v", err)
			return
		}
	}
}

// liftLeast gives the cgroups below root that have the least quota none.
func liftLeast(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while it was looked at
		}
		if err != nil || entry.Name() != "cpu.max" {
			return err
		}
		quota, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(quota)) == leastQuota {
			err = os.WriteFile(path, []byte(noQuota), 0o644)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil // the same
		}
		return err
	})
}
