package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/health"
)

func TestProcessesOfNoCgroupAreMovedIntoThatOfTheSystem(t *testing.T) {
	tr := onKernel(t, Config{})
	root := tr.kubepods()[:1:1]
	to := path.Join(root.path(), "system")
	start := func(at name) int {
		t.Helper()
		m, err := tr.open(at)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := m.Apply(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	if cgroups.IsCgroup2UnifiedMode() {
		t.Skip("a cgroup with others below it has no processes of its own")
	}
	loose, other, elsewhere := start(root), start(root), start(append(root, "elsewhere"))
	s := System{Name: to, Health: health.Discard(), root: root.path()}
	if moved, err := s.move(); err != nil || moved != 2 {
		t.Fatalf("%d moved, %v", moved, err)
	}
	for pid, want := range map[int]string{loose: to, other: to, elsewhere: path.Join(root.path(), "elsewhere")} {
		list, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		if list["cpu"] != want || list["memory"] != want {
			t.Errorf("process %d is in %s and %s, want %s", pid, list["cpu"], list["memory"], want)
		}
	}
	if moved, err := s.move(); err != nil || moved != 0 {
		t.Errorf("again: %d moved, %v", moved, err)
	}
}

// The kernel moves no process of real time into a cgroup without a share of that.
func TestAProcessThatCannotBeMovedKeepsNoOther(t *testing.T) {
	tr := onKernel(t, Config{})
	root := tr.kubepods()[:1:1]
	if cgroups.IsCgroup2UnifiedMode() {
		t.Skip("a cgroup with others below it has no processes of its own")
	}
	m, err := tr.open(root)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := m.Apply(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	first := 0
	s := System{Name: path.Join(root.path(), "system"), Health: health.Discard(), root: root.path(), apply: func(to cgroups.Manager, pid int) error {
		if first == 0 || first == pid {
			first = pid
			return unix.EINVAL
		}
		return to.Apply(pid)
	}}
	if moved, err := s.move(); moved != 2 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%d moved, %v", moved, err)
	}
}

func TestTheKernelsProcessesAndTheRootStay(t *testing.T) {
	if moved, err := (System{Name: "/"}).move(); err == nil || moved != 0 {
		t.Errorf("into the root: %d, %v", moved, err)
	}
	if ofKernel(os.Getpid()) {
		t.Error("this process is none of the kernel's")
	}
	if name, err := os.ReadFile("/proc/2/comm"); err == nil && string(name) == "kthreadd\n" && !ofKernel(2) {
		t.Error("kthreadd is the kernel's")
	}
}
