package capacity

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheMachinesMemoryIsItsTotalInBytes(t *testing.T) {
	if got := memory(write(t, "MemFree: 1 kB\nMemTotal:       2048 kB\nMemAvailable: 3 kB\n")); got != 2<<20 {
		t.Errorf("%d bytes", got)
	}
	if got := memory(write(t, "MemFree: 1 kB\n")); got != 0 {
		t.Errorf("%d bytes of a file that does not say", got)
	}
	if got := memory(filepath.Join(t.TempDir(), "none")); got != 0 {
		t.Errorf("%d bytes of no file", got)
	}
}

func TestTheKernelAllowsTheSmallerOfItsTwoBoundsOnProcesses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		pids, threads string
		want          int64
	}{
		{write(t, "4194304\n"), write(t, "1000\n"), 1000},
		{write(t, "32768\n"), write(t, "100000\n"), 32768},
		{write(t, "32768\n"), none, 32768},
		{none, write(t, "1000\n"), 0},
		{write(t, "many\n"), write(t, "1000\n"), 0},
	} {
		if got := processes(c.pids, c.threads); got != c.want {
			t.Errorf("%d, want %d", got, c.want)
		}
	}
}
