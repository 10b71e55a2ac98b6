package alone

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestASecondAgentInARootDirectoryIsRefusedUntilTheFirstIsGone(t *testing.T) {
	// The kernel keeps no virtual time, so these wait in earnest.
	const short = 100 * time.Millisecond
	root := t.TempDir()
	release, err := Hold(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thisMachine().hold(t.Context(), root, short); err == nil || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "another podsync") {
		t.Errorf("a second one: %v", err)
	}
	if err := Check(t.Context(), t.TempDir()); err != nil {
		t.Errorf("another directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Hold(ctx, root); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("a stop while it waits: %v", err)
	}
	// One that was killed is gone a little later.
	second := make(chan error, 1)
	go func() {
		release, err := thisMachine().hold(t.Context(), root, 30*time.Second)
		if err == nil {
			release()
		}
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(short):
	}
	release()
	if err := <-second; err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
	if err := Check(t.Context(), root); err != nil {
		t.Errorf("after both are gone: %v", err)
	}
}

func TestAKubeletInTheRootDirectoryIsNamed(t *testing.T) {
	// The paths of sockets are short.
	root, err := os.MkdirTemp("", "alone")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	path := filepath.Join(root, "pod-resources", "kubelet.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := Check(t.Context(), root); err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("%v", err)
	}
	// The socket of one that has ended stays.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), root); err != nil {
		t.Errorf("a kubelet that has ended: %v", err)
	}
}
