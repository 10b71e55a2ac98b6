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
