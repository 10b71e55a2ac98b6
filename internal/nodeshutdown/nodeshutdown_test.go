package nodeshutdown

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/internal/logind"
	"github.com/polylet/polylet/internal/testkit/fakelogind"
)

// A lock that is not let go leaves the fake's reader of it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a Keeper with a logind, and a Client.
type house struct {
	t      *testing.T
	server *fakelogind.Server
	cfg    Config
	client *Client
	states chan State
}

// open starts all; uid may follow beside root.
func open(t *testing.T, uid int) *house {
	t.Helper()
	dir := t.TempDir()
	h := &house{t: t, states: make(chan State, 16)}
	h.cfg = Config{
		Connect: func(ctx context.Context) (Logind, error) { return logind.Connect(ctx) },
		Period:  30 * time.Second, StateFile: filepath.Join(dir, StateFile), DropIn: filepath.Join(dir, "conf.d", "99.conf"), UID: uid,
	}
	var err error
	if h.server, err = fakelogind.Start(dir, h.cfg.DropIn, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.server.Close)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", h.server.Address)
	h.client = NewClient(Socket(dir))
	h.run(dir)
	return h
}

// run runs a Keeper and the client until the test ends.
func (h *house) run(dir string) {
	h.t.Helper()
	listener, err := net.Listen("unix", Socket(dir))
	if err != nil {
		h.t.Fatal(err)
	}
	keeper := New(h.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- keeper.Run(ctx) }()
	go func() { done <- keeper.Serve(ctx, listener) }()
	go func() {
		done <- h.client.Run(ctx, func(s State, err error) {
			if err == nil {
				h.states <- s
			}
		})
	}()
	h.t.Cleanup(func() {
		cancel()
		for range 3 {
			if err := <-done; err != nil {
				h.t.Error(err)
			}
		}
	})
}

// await waits for a state that is as wanted.
func (h *house) await(what string, wanted func(State) bool) State {
	h.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case s := <-h.states:
			if wanted(s) {
				return s
			}
		case <-timeout:
			h.t.Fatalf("not told that %s", what)
		}
	}
}

func (h *house) held(want int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	if err := h.server.AwaitHeld(ctx, want); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) times() (t Times) {
	h.t.Helper()
	data, err := os.ReadFile(h.cfg.StateFile)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return t
}

func TestAShutdownIsDelayedUntilAllIsDone(t *testing.T) {
	h := open(t, os.Getuid())
	h.await("it is long enough delayed", func(s State) bool { return s.Delay == 30*time.Second && s.Problem == "" && s.Since.IsZero() })
	h.held(1)
	if err := h.server.Prepare(true); err != nil {
		t.Fatal(err)
	}
	down := h.await("the machine goes down", func(s State) bool { return !s.Since.IsZero() })
	if got := h.times(); !got.StartTime.Equal(down.Since) || !got.EndTime.IsZero() {
		t.Errorf("the state file says %+v", got)
	}
	h.client.Done(down.Since.Add(-time.Second)) // Of another shutdown: nothing.
	h.held(1)
	h.client.Done(down.Since)
	h.held(0)
	if got := h.times(); got.EndTime.Before(got.StartTime) {
		t.Errorf("the state file says %+v", got)
	}
	if err := h.server.Prepare(false); err != nil {
		t.Fatal(err)
	}
	h.await("it was called off", func(s State) bool { return s.Since.IsZero() })
	h.held(1)
}

func TestAShutdownOfWhichThisProcessHeardLateIsOneAllTheSame(t *testing.T) {
	h := open(t, os.Getuid())
	h.await("all is well", func(s State) bool { return s.Delay > 0 })
	if err := h.server.Prepare(true); err != nil {
		t.Fatal(err)
	}
	first := h.await("the machine goes down", func(s State) bool { return !s.Since.IsZero() })
	second := New(h.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- second.Run(ctx) }()
	for changed := closed(); ; {
		<-changed
		var s State
		if s, changed = second.get(); !s.Since.IsZero() {
			if !s.Since.Equal(first.Since) {
				t.Errorf("it began at %s, not at %s", s.Since, first.Since)
			}
			break
		}
	}
	cancel()
	<-done
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
