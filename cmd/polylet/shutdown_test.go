package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/testkit/fakelogind"
	"github.com/polylet/polylet/services/nodestatus"
)

func TestTheConfigurationSaysHowLongAShutdownIsDelayed(t *testing.T) {
	const two, three = "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n", "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 5}, {priority: 0, shutdownGracePeriodSeconds: 7}]\n"
	for name, c := range map[string]struct {
		text string
		want []nodestatus.ShutdownGroup
	}{
		"nothing":     {"", nil},
		"two periods": {two, []nodestatus.ShutdownGroup{{Priority: 0, Period: 20 * time.Second}, {Priority: 2000000000, Period: 10 * time.Second}}},
		"by priority": {three, []nodestatus.ShutdownGroup{{Priority: 0, Period: 7 * time.Second}, {Priority: 100, Period: 5 * time.Second}}},
	} {
		loaded := load(t, "--config="+writeConfig(t, c.text), "--hostname-override=n1")
		if got := shutdownGroups(loaded); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if part := newShutdownPart(loaded, "", supervise.Identity{}, klog.Background()); (part == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %+v", name, part)
		}
	}
}

func TestThatDBusHasNoRuleOfWhoEndsThePodsIsSaidWithItsMend(t *testing.T) {
	said := ""
	part := &shutdownPart{log: funcr.New(func(_, args string) { said += args }, funcr.Options{})}
	if part.warn(true); said != "" {
		t.Error(said)
	}
	if part.warn(false); !strings.Contains(said, "/usr/share/dbus-1/system.d/polylet.conf") {
		t.Errorf("said %q", said)
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhoHasRootHoldsLogindsLockAndTellsOfShutdowns(t *testing.T) {
	dir := t.TempDir()
	machine, err := fakelogind.Start(dir, "", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.Address)
	sockets := filepath.Join(dir, "sockets")
	loaded := load(t, "--config="+writeConfig(t, "shutdownGracePeriod: 3s\n"), "--hostname-override=n1", "--socket-dir="+sockets, "--root-dir="+dir)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	part := newShutdownPart(loaded, "", supervise.Identity{Drop: true, UID: os.Getuid()}, klog.Background())
	done, states := make(chan struct{}, 2), make(chan nodeshutdown.State, 8)
	go func() { part.follow(ctx); done <- struct{}{} }()
	client := nodeshutdown.NewClient(nodeshutdown.Socket(sockets))
	go func() {
		_ = client.Run(ctx, func(s nodeshutdown.State, err error) {
			if err == nil {
				states <- s
			}
		})
		done <- struct{}{}
	}()
	if err := machine.AwaitHeld(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := machine.Prepare(true); err != nil {
		t.Fatal(err)
	}
	for s := range states {
		if !s.Since.IsZero() {
			client.Done(s.Since)
			break
		}
	}
	if err := machine.AwaitHeld(ctx, 0); err != nil {
		t.Error(err)
	}
	if times, err := nodeshutdown.ReadTimes(filepath.Join(dir, nodeshutdown.StateFile)); err != nil || times.EndTime.Before(times.StartTime) {
		t.Errorf("%+v, %v", times, err)
	}
	cancel()
	<-done
	<-done
	var nobody *shutdownPart
	nobody.follow(t.Context())
}
