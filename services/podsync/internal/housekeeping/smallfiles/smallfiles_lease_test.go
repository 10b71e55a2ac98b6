package smallfiles

import (
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
)

// TestAFileUnderALeaseIsToldOnceAndCutWhenItIsFree: a container that has a lease on
// its own file keeps the guard from it, and writes on.
func TestAFileUnderALeaseIsToldOnceAndCutWhenItIsFree(t *testing.T) {
	file := hostsOf(t, t.TempDir(), "p", "127.0.0.1 localhost\n")
	f := open(t, file)
	grows(t, f)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on this filesystem: %v", err)
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
	if n := lines.Load(); n != 1 {
		t.Errorf("%d lines in the log, want one", n)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	w.tick()
	if got := takes(t, file); got > Limit {
		t.Errorf("it takes %d bytes once the lease is gone, want %d at most", got, Limit)
	}
	if len(w.leased) > 0 {
		t.Errorf("%v counts as leased", w.leased)
	}
}
