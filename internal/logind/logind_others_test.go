package logind

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/testkit/fakelogind"
)

// nobody is a user with no rights.
const nobody = 65534

// emit sends logind's signal as a user, on a connection of its own that ends at once.
func emit(t *testing.T, address string, uid int, preparing bool) {
	t.Helper()
	emitAnd(t, address, uid, preparing)()
}

// emitAnd does so on a connection that ends when leave is called.
func emitAnd(t *testing.T, address string, uid int, preparing bool) (leave func()) {
	t.Helper()
	ended := make(chan error, 1)
	var conn *dbus.Conn
	go func() {
		// The thread is this user's from here on, so that it ends with the goroutine.
		runtime.LockOSThread()
		if uid != os.Getuid() {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				ended <- errno
				return
			}
		}
		var err error
		conn, err = dbus.Dial(address)
		if err == nil {
			err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))})
		}
		if err == nil {
			err = conn.Hello()
		}
		if err == nil {
			err = conn.Emit(object, manager+"."+signal, preparing)
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close() } // Nothing is lost with it.
}

func TestWhatIsSaidInLogindsNameIsHeardAsTheKubeletHearsIt(t *testing.T) {
	bus, server := connected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, want := range []bool{true, false} {
		emit(t, server.Address, os.Getuid(), want)
		if got, err := bus.Next(ctx); err != nil || got != want {
			t.Errorf("heard %v, %v; want %v", got, err, want)
		}
	}
}

func TestTheBusLetsOnlyRootSpeakInLogindsName(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("speaks as another user, for which it has to be root")
	}
	dir := t.TempDir()
	for _, open := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(open, 0o755); err != nil { //nolint:gosec // For the other user.
			t.Fatal(err)
		}
	}
	policy, err := os.ReadFile("../../deploy/systemd/polylet.dbus.conf")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fakelogind.PolicyFile), policy, 0o600); err != nil {
		t.Fatal(err)
	}
	bus, server := connectedIn(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	emit(t, server.Address, nobody, true)
	// The bus keeps the order: this comes second.
	emit(t, server.Address, 0, false)
	if got, err := bus.Next(ctx); err != nil || got {
		t.Errorf("heard %v, %v first: anybody may have the pods ended", got, err)
	}
	if err := server.Prepare(true); err != nil {
		t.Fatal(err)
	}
	if got, err := bus.Next(ctx); err != nil || !got {
		t.Errorf("heard %v, %v of logind itself", got, err)
	}
}
