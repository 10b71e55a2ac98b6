// Package cputime tells tests how much work something is. It owns the reading of what the
// kernel counts for a thread, which, unlike the time that passes, is the same on a machine
// that has something else to do; it must never be used by what ships.
package cputime

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Of is how long a processor works for what do does in the goroutine that it is called in.
// Source: getrusage(2) of Linux.
func Of(t *testing.T, do func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := used(t)
	do()
	return used(t) - before
}

func used(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
