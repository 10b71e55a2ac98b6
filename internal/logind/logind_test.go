package logind

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/internal/testkit/fakelogind"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected is a connection to a logind of the test's own.
func connected(t *testing.T) (*Bus, *fakelogind.Server) {
	t.Helper()
	return connectedIn(t, t.TempDir())
}

func connectedIn(t *testing.T, dir string) (*Bus, *fakelogind.Server) {
	t.Helper()
	server, err := fakelogind.Start(dir, "", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", server.Address)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	bus, err := Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus, server
}

func TestALockDelaysAShutdownUntilItIsClosed(t *testing.T) {
	bus, server := connected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := bus.Inhibit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.AwaitHeld(ctx, 1); err != nil {
		t.Error(err)
	}
	if got, want := server.Asked(), []string{"shutdown:kubelet:Kubelet needs time to handle node shutdown:delay"}; !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.AwaitHeld(ctx, 0); err != nil {
		t.Error(err)
	}
}

func TestWhatLogindSaysIsHeard(t *testing.T) {
	bus, server := connected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if delay, err := bus.Delay(ctx); err != nil || delay != 5*time.Second {
		t.Errorf("delay %s, %v", delay, err)
	}
	for _, want := range []bool{true, false} {
		if err := server.Prepare(want); err != nil {
			t.Fatal(err)
		}
		if got, err := bus.Next(ctx); err != nil || got != want {
			t.Errorf("heard %v, %v; want %v", got, err, want)
		}
		if got, err := bus.Preparing(ctx); err != nil || got != want {
			t.Errorf("it is %v, %v; want %v", got, err, want)
		}
	}
	if err := bus.Reload(ctx); err != nil {
		t.Error(err)
	}
	server.Close()
	if _, err := bus.Next(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a bus that is gone said: %v", err)
	}
}

func TestABusThatIsNotThereIsAnError(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
	if bus, err := Connect(t.Context()); err == nil {
		_ = bus.Close()
		t.Error("connected to nothing")
	}
}

func TestABusThatTakesAConnectionAndDoesNotAnswerIsNotWaitedForForever(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Connect(ctx)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it is waited for")
	}
}

func TestALockThatComesTooLateIsLetGo(t *testing.T) {
	bus, server := connected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	gone, giveUp := context.WithCancel(ctx)
	giveUp()
	for range 20 { // The answer may win.
		lock, err := bus.Inhibit(gone)
		if err != nil {
			break
		}
		_ = lock.Close()
	}
	lock, err := bus.Inhibit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.AwaitHeld(ctx, 1); err != nil { // And none of the others.
		t.Error(err)
	}
	_ = lock.Close()
}
