package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// TestAStartThatWaitsForTheLockIsNotGivenUp: what is ordered after podsync must
// not start while another agent has the node.
func TestAStartThatWaitsForTheLockIsNotGivenUp(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	path := filepath.Join(dir, "lock")
	other, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	loaded := &kubeletconfig.Loaded{}
	loaded.Flags.LockFile = path
	got := make(chan error, 1)
	go func() {
		_, release, err := holdLock(context.Background(), loaded, klog.Background())
		if err == nil {
			release()
		}
		got <- err
	}()
	said := make([]byte, 200)
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := l.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:n]), "EXTEND_TIMEOUT_USEC=90000000\nSTATUS=Waiting for another agent") {
		t.Errorf("systemd is told %q, %v", said[:n], err)
	}
	select {
	case err := <-got:
		t.Errorf("the lock is held by two: %v", err)
	default:
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
