package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACgroupThatIsGoneIsAnErrorOfItsOwn(t *testing.T) {
	for name, h := range map[string]*Hierarchy{
		"v1": New(false, map[string]string{"cpuacct": t.TempDir(), "memory": t.TempDir()}), "v2": New(true, map[string]string{"": t.TempDir()}),
	} {
		if _, err := h.Read("/nothing", All); !errors.Is(err, ErrGone) {
			t.Errorf("%s: error %v; want ErrGone", name, err)
		}
	}
}

// It is read every second, and each file of the kernel's is added up for who reads it.
func TestMemoryAloneIsReadWithoutCPU(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"v1/cpuacct/pod/cpuacct.usage": "12345\n", "v1/memory/pod/memory.usage_in_bytes": "900\n", "v1/memory/pod/memory.stat": "total_inactive_file 100\n",
		"v2/pod/cpu.stat": "usage_usec 1500\n", "v2/pod/memory.current": "900\n", "v2/pod/memory.stat": "inactive_file 100\n",
		"none/pod/cpu.stat": "usage_usec 1500\n",
	})
	for name, h := range map[string]*Hierarchy{
		"v1": New(false, map[string]string{"cpuacct": dir + "/v1/cpuacct", "memory": dir + "/v1/memory"}), "v2": New(true, map[string]string{"": dir + "/v2"}),
	} {
		s, err := h.Read("/pod", WithoutCPU)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Memory.WorkingSet != 800 || s.Cpu.Usage.Total != 0 {
			t.Errorf("%s: working set %d, want 800; cpu %d, want that it is not read", name, s.Memory.WorkingSet, s.Cpu.Usage.Total)
		}
	}
	if _, err := New(true, map[string]string{"": dir + "/none"}).Read("/pod", WithoutCPU); !errors.Is(err, ErrGone) {
		t.Errorf("of a cgroup without memory: %v", err)
	}
}

func FuzzFilesOfAnyContentAreRead(f *testing.F) {
	f.Add([]byte("usage_usec 1\nuser_usec\n"), []byte("8:0 rbytes=1 x= =\n"), []byte("some avg10=. total=\n"))
	f.Fuzz(func(t *testing.T, pairs, disk, pressure []byte) {
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"cpu.stat": string(pairs), "memory.stat": string(pairs), "io.stat": string(disk), "cpu.pressure": string(pressure), "cgroup.procs": string(pairs),
		})
		if _, err := New(true, map[string]string{"": dir}).Read("/", All); err != nil {
			t.Fatalf("read: %v", err)
		}
	})
}
