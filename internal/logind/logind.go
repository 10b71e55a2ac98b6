// Package logind speaks with systemd-logind over D-Bus about the machine's shutdown: how
// long it may be delayed, a lock that delays it, and when it begins.
//
// It must never decide about a shutdown, nor begin one.
// Source: https://www.freedesktop.org/wiki/Software/systemd/inhibit/
package logind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	service = "org.freedesktop.login1"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"
	signal  = "PrepareForShutdown"

	// sighup is the signal upon which logind reads its configuration.
	sighup = int32(1)
)

// Bus is a connection. Safe for concurrent use.
type Bus struct {
	conn    *dbus.Conn
	signals chan *dbus.Signal
	// guarded says that the bus lets none but root send these signals, or that this is for
	// another bus than the machine's to say.
	guarded bool
	// refused is who was refused last.
	refused string
}

// addressVariable names another bus than the machine's.
const addressVariable = "DBUS_SYSTEM_BUS_ADDRESS"

// Connect connects to the system's bus, where DBUS_SYSTEM_BUS_ADDRESS says it is or at
// its usual place, and follows what is said in logind's name from then on, by logind or
// by another process of root's: the kubelet goes by whoever sends it, and node tests send
// it themselves. Of who is gone before it is asked who that was, it is for the bus to say
// whether it may (see Guarded). ctx bounds the connecting alone.
func Connect(ctx context.Context) (*Bus, error) {
	return connectTo(ctx, cmp.Or(os.Getenv(addressVariable), "unix:path=/run/dbus/system_bus_socket"), Guarded())
}

func connectTo(ctx context.Context, address string, guarded bool) (*Bus, error) {
	conn, err := connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to D-Bus at %s: %w: does dbus run on this machine?", address, err)
	}
	b := &Bus{conn: conn, signals: make(chan *dbus.Signal, 16), guarded: guarded}
	conn.Signal(b.signals)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(object), dbus.WithMatchInterface(manager),
		dbus.WithMatchMember(signal)); err != nil {
		_ = conn.Close() // It is of no use.
		return nil, fmt.Errorf("follow logind's signals: %w", err)
	}
	return b, nil
}

// connect makes a connection that does not end with ctx. A socket of systemd's takes
// one long before a bus answers.
func connect(ctx context.Context, address string) (*dbus.Conn, error) {
	// In their order: a shutdown that was called off must not be heard before it began.
	conn, err := dbus.Dial(address, dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // It is of no use.
		return nil, err
	}
	return conn, nil
}

// Next waits for the next signal: the machine prepares for its shutdown, or, false, it
// was called off. An error ends the connection.
func (b *Bus) Next(ctx context.Context) (preparing bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case s, open := <-b.signals:
			if !open {
				return false, errors.New("the connection to D-Bus ended")
			}
			if s.Name != manager+"."+signal || len(s.Body) != 1 {
				continue
			}
			preparing, ok := s.Body[0].(bool)
			if !ok {
				continue
			}
			if heeded, err := b.heeds(ctx, s.Sender); heeded || err != nil {
				return preparing && heeded, err
			}
		}
	}
}

// Delay is how long logind lets a shutdown be delayed at most.
func (b *Bus) Delay(ctx context.Context) (time.Duration, error) {
	var microseconds uint64
	if err := b.property(ctx, "InhibitDelayMaxUSec", &microseconds); err != nil {
		return 0, err
	}
	return time.Duration(min(microseconds, uint64(1<<63-1)/1000)) * time.Microsecond, nil
}

// Preparing is whether the machine prepares for its shutdown now.
func (b *Bus) Preparing(ctx context.Context) (bool, error) {
	var preparing bool
	return preparing, b.property(ctx, "PreparingForShutdown", &preparing)
}

func (b *Bus) property(ctx context.Context, name string, to any) error {
	call := b.conn.Object(service, object).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name)
	var value dbus.Variant
	err := call.Store(&value)
	if err == nil {
		err = value.Store(to)
	}
	if err != nil {
		return fmt.Errorf("ask logind for %s: %w", name, err)
	}
	return nil
}

// Inhibit takes a lock that delays each shutdown until it is closed, or Delay is over.
// A lock that comes when ctx is done already is let go: nobody would.
func (b *Bus) Inhibit(ctx context.Context) (*os.File, error) {
	answered := make(chan *dbus.Call, 1)
	b.conn.Object(service, object).Go(manager+".Inhibit", 0, answered,
		"shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
	select {
	case call := <-answered:
		file, err := lockOf(call)
		if err != nil {
			return nil, fmt.Errorf("take logind's lock that delays a shutdown: %w", err)
		}
		return file, nil
	case <-ctx.Done():
		go func() { // It ends with the connection at the latest.
			if file, err := lockOf(<-answered); err == nil {
				_ = file.Close() // It is closed in any case.
			}
		}()
		return nil, fmt.Errorf("take logind's lock that delays a shutdown: %w", context.Cause(ctx))
	}
}

func lockOf(call *dbus.Call) (*os.File, error) {
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "logind's lock"), nil //nolint:gosec // A descriptor.
}

// Reload has logind read its configuration again; it goes by it some time later.
func (b *Bus) Reload(ctx context.Context) error {
	call := b.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", sighup)
	if call.Err != nil {
		return fmt.Errorf("have logind read its configuration: %w", call.Err)
	}
	return nil
}

// Close ends the connection; locks stay.
func (b *Bus) Close() error { return b.conn.Close() }
