package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestThereAreNoMorePlacesThanTheKernelHasWatchersFor(t *testing.T) {
	for _, c := range []struct{ places, watchers, limit, used, want int }{
		{4, 22, 128, 0, 4}, {4, 25, 128, 10, 3}, {4, 25, 8192, 300, 4}, {4, 22, 128, 80, 2}, {4, 22, 128, 128, 1}, {4, 25, 30, 0, 1}, {4, 0, 128, 0, 4}, {4, 25, 0, 0, 4},
	} {
		if got := room(c.places, c.watchers, c.limit, c.used); got != c.want {
			t.Errorf("%d places of %d watchers out of %d, with %d in use: %d; want %d", c.places, c.watchers, c.limit, c.used, got, c.want)
		}
	}
}

func TestWatchersInUseAreCounted(t *testing.T) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Skipf("no watcher is left: %v", err)
	}
	defer unix.Close(fd)
	if n := used(); n < 1 {
		t.Errorf("%d are in use", n)
	}
}
