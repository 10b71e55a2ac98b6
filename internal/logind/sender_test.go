package logind

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakelogind"
)

// TestWithoutARuleOfTheBusOnlyRootIsHeeded: any user may send logind's signals then, and
// that the machine goes down has all pods ended.
func TestWithoutARuleOfTheBusOnlyRootIsHeeded(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("speaks as another user, for which it has to be root")
	}
	for _, guarded := range []bool{false, true} {
		dir := t.TempDir()
		for _, open := range []string{dir, filepath.Dir(dir)} {
			if err := os.Chmod(open, 0o755); err != nil { //nolint:gosec // For the other user.
				t.Fatal(err)
			}
		}
		server, err := fakelogind.Start(dir, "", 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		bus, err := connectTo(ctx, server.Address, guarded)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = bus.Close() }()
		stayed := func(uid int, preparing bool) { defer emitAnd(t, server.Address, uid, preparing)() }
		leave := emitAnd(t, server.Address, nobody, true)
		defer leave()
		if !guarded {
			stayed(nobody, true) // it has left when it is asked about
		}
		if err := server.Prepare(false); err != nil {
			t.Fatal(err)
		}
		if got, err := bus.Next(ctx); err != nil || got {
			t.Errorf("with a rule %v: heard %v, %v first: anybody may have the pods ended", guarded, got, err)
		}
		defer emitAnd(t, server.Address, 0, true)()
		if got, err := bus.Next(ctx); err != nil || !got {
			t.Errorf("with a rule %v: heard %v, %v of root", guarded, got, err)
		}
	}
}

// A bus that is slow once must not make logind a stranger for good.
func TestASenderOfWhomTheBusDoesNotSayAnythingIsNotRefused(t *testing.T) {
	bus, server := connected(t)
	bus.guarded = false
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var logind string
	if err := bus.ask(ctx, &logind, "GetNameOwner", service); err != nil {
		t.Fatal(err)
	}
	late, over := context.WithCancel(ctx)
	over()
	if heeded, err := bus.heeds(late, logind); heeded || err == nil {
		t.Errorf("heeded %v, %v: the shutdown is missed, unless logind is asked for it on another connection", heeded, err)
	}
	if err := server.Prepare(true); err != nil {
		t.Fatal(err)
	}
	if got, err := bus.Next(ctx); err != nil || !got {
		t.Errorf("heard %v, %v of logind itself", got, err)
	}
}

func TestARuleOfTheBusIsFoundWhereItIsInstalled(t *testing.T) {
	policy, err := os.ReadFile("../../deploy/systemd/polylet.dbus.conf")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		string(policy): true,
		"":             false,
		`<deny send_destination="org.freedesktop.login1"/><allow send_type="signal" send_interface="org.freedesktop.login1.Manager"/>`: false,
		`<deny send_type="method_call" send_interface="org.freedesktop.login1.Manager"/>`:                                              false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "some.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := guardedIn(filepath.Join(dir, "none"), dir); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
