package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// ended gets how a service ends that starts with the configuration file.
func ended(ctx context.Context, t *testing.T, file string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	cmd := serviceCommand("test", "A test", func(context.Context, *kubeletconfig.Loaded) error {
		t.Error("it runs without a configuration")
		return nil
	})
	cmd.SetArgs([]string{"--config=" + file})
	go func() { done <- cmd.ExecuteContext(ctx) }()
	return done
}

// still says whether it goes on, for a moment that an ending process does not need.
func still(done <-chan error) bool {
	select {
	case <-done:
		return false
	case <-time.After(300 * time.Millisecond):
		return true
	}
}

func TestAServiceOfAManagersWaitsForItsMissingConfigurationBeforeItEnds(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	file := filepath.Join(t.TempDir(), "kubelet", "config.yaml")
	begun := time.Now()
	done := ended(t.Context(), t, file)
	if !still(done) {
		t.Fatal("it ended at once, to be started again for ever")
	}
	put(t, file, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
	// Its directories may be others now, and a new start sees them.
	if err := <-done; err == nil || !strings.Contains(err.Error(), "read --config file") {
		t.Errorf("it ends with %v", err)
	}
	if took := time.Since(begun); took >= missingWithin {
		t.Errorf("it goes on for %s though the file is there", took)
	}
}

// TestAMissingConfigurationDoesNotHoldUpTheStartOfAMachine: multi-user.target waits for
// the services' starts, which wait for each other, and cloud-init joins a node after it.
func TestAMissingConfigurationDoesNotHoldUpTheStartOfAMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	file := filepath.Join(t.TempDir(), "config.yaml")
	done, got := ended(t.Context(), t, file), make([]byte, 1000)
	if err := sock.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := sock.Read(got); err != nil || string(got[:n]) != "READY=1\nSTATUS=Waiting for "+file {
		t.Errorf("systemd is told %q, %v", got[:n], err)
	}
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it still waits after a minute")
	}
}

func TestAServiceThatWaitsForItsConfigurationEndsWhenItIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	ctx, cancel := context.WithCancel(t.Context())
	done := ended(ctx, t, filepath.Join(t.TempDir(), "config.yaml"))
	if !still(done) {
		t.Fatal("it ended at once")
	}
	cancel()
	if err := <-done; err != nil { // as it does when it has waited long enough
		t.Errorf("it ends with %v", err)
	}
}

func TestAPersonIsToldOfAMissingConfigurationAtOnce(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	begun := time.Now()
	if err := <-ended(t.Context(), t, filepath.Join(t.TempDir(), "config.yaml")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it ends with %v", err)
	}
	if time.Since(begun) >= missingWithin {
		t.Error("it waits")
	}
}

func TestAServiceOfAManagersEndsAtOnceWithAConfigurationThatIsWrong(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	begun := time.Now()
	if err := <-ended(t.Context(), t, put(t, filepath.Join(t.TempDir(), "config.yaml"), "kind: Other\n")); err == nil || strings.Contains(err.Error(), "no such file") {
		t.Errorf("it ends with %v", err)
	}
	if time.Since(begun) >= missingWithin {
		t.Error("it waits")
	}
}
