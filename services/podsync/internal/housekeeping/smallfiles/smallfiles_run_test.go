package smallfiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// TestAFileThatIsRunIsToldOnceAndCutWhenItHasEnded: a container may make a program of
// its termination log. While it runs, the kernel lets nobody write to the file.
func TestAFileThatIsRunIsToldOnceAndCutWhenItHasEnded(t *testing.T) {
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "0a1b2c3d")
	if err := os.WriteFile(file, program, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, f, 0, 64<<20)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), file, "600")
	run.Args[0] = "sleep"
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	var lines atomic.Int32
	w := &watch{Guard: New(t.TempDir(), Deps{}), told: map[string]bool{}, timed: map[string]bool{}, leased: map[string]bool{}}
	w.log = logr.New(funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{}).GetSink())
	w.open()
	defer w.close()
	for range 5 {
		w.look(file)
	}
	w.tick()
	if n := lines.Load(); n != 1 || !w.told[file] {
		t.Errorf("%d lines in the log, told %v; want one that says it is large", n, w.told)
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait() // it was killed
	w.tick()
	if got := takes(t, file); got > TerminationLimit {
		t.Errorf("it takes %d bytes once it has ended, want %d at most", got, TerminationLimit)
	}
	if len(w.leased) > 0 {
		t.Errorf("%v is still held to be kept from the guard", w.leased)
	}
}
