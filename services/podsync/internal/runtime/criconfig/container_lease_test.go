package criconfig

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestAHostsFileUnderALeaseIsNotWaitedFor(t *testing.T) {
	f := newFixture(t)
	p := pod(v1.Container{})
	first, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(first.Mounts[0].HostPath, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := held.Truncate(3); err != nil { // so that it has to be written again
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on this filesystem: %v", err)
	}
	made := make(chan error, 1)
	go func() {
		_, err := f.container(t, p)
		made <- err
	}()
	select {
	case err := <-made:
		if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%v, want that the file cannot be had now", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the start of a container waits for who holds the lease")
		if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Fatal(err)
		}
		<-made
	}
}
