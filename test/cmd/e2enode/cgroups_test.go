package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheHierarchiesOfAMachineAreReadWithTheOptionsThatMountThemAgain(t *testing.T) {
	const mountinfo = `22 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 22 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
`
	got, err := readHierarchies(strings.NewReader(mountinfo))
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{
		{"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"},
		{"/sys/fs/cgroup/systemd", "cgroup", "none,name=systemd"},
		{"/sys/fs/cgroup/unified", "cgroup2", ""},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
