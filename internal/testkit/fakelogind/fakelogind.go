// Package fakelogind is systemd-logind, as far as shutdowns go, on a bus of its own. It
// needs the program dbus-daemon. It must never be imported by anything that ships.
package fakelogind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	login   = "org.freedesktop.login1"
	systemd = "org.freedesktop.systemd1"
	manager = login + ".Manager"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
)

// Server is the fake. Safe for concurrent use.
type Server struct {
	// Address is that of its bus, for DBUS_SYSTEM_BUS_ADDRESS.
	Address string

	daemon *exec.Cmd
	conn   *dbus.Conn
	dropIn string

	mu        sync.Mutex
	delay     time.Duration
	preparing bool
	asked     []string // what locks were asked for
	held      int
	sent      []*os.File // this process' own ends of locks, while they may not be sent yet
	given     []*os.File // the ends that tell when a lock is let go
	changed   chan struct{}
	closed    bool           // no lock is given any more
	watched   sync.WaitGroup // the locks that are
}

// PolicyFile is the name of a file in the directory of Start with rules of who may send
// what on the bus, which allows everything without it.
const PolicyFile = "policy.conf"

// Start starts one in a directory. It delays for so long until it is told to read its
// configuration, which is the file dropIn.
func Start(dir, dropIn string, delay time.Duration) (*Server, error) {
	config := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=%s</listen>
<policy context="default"><allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
<include ignore_missing="yes">%s</include></busconfig>
`, filepath.Join(dir, "bus.sock"), filepath.Join(dir, PolicyFile)), 0o600); err != nil {
		return nil, err
	}
	s := &Server{dropIn: dropIn, delay: delay, changed: make(chan struct{})}
	s.daemon = exec.Command("dbus-daemon", "--nofork", "--nosyslog", "--print-address=1", "--config-file="+config)
	out, err := s.daemon.StdoutPipe()
	if err == nil {
		err = s.daemon.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start dbus-daemon: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		s.Address = strings.TrimSpace(line)
		err = s.serve()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("serve logind on %q: %w", line, err)
	}
	return s, nil
}

func (s *Server) serve() error {
	conn, err := dbus.Connect(s.Address)
	if err != nil {
		return err
	}
	s.conn = conn
	for _, err := range []error{
		conn.Export(manage{s}, object, manager), conn.Export(properties{s}, object, "org.freedesktop.DBus.Properties"),
		conn.Export(units{s}, "/org/freedesktop/systemd1", systemd+".Manager"),
	} {
		if err != nil {
			return err
		}
	}
	for _, name := range []string{login, systemd} {
		if reply, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			return errors.Join(err, fmt.Errorf("the name %s was not given: %d", name, reply))
		}
	}
	return nil
}

// Close ends it, and its bus.
func (s *Server) Close() {
	if s.conn != nil {
		_ = s.conn.Close() // Nothing is lost with it.
	}
	_ = s.daemon.Process.Kill() // It may have ended.
	_ = s.daemon.Wait()
	s.mu.Lock()
	sent, given := s.sent, s.given
	s.closed = true
	s.mu.Unlock()
	for _, file := range sent {
		_ = file.Close() // It may be: what holds a lock now is nobody of the fake's.
	}
	// A lock whose answer comes after its call's deadline is lost in the D-Bus library,
	// and stays open: it has a second here.
	for _, reader := range given {
		_ = reader.SetReadDeadline(time.Now().Add(time.Second)) // It may be closed.
	}
	s.watched.Wait()
}

// Prepare says that the machine prepares for its shutdown, or that it was called off.
func (s *Server) Prepare(preparing bool) error {
	s.change(func() { s.preparing = preparing })
	return s.conn.Emit(object, manager+".PrepareForShutdown", preparing)
}

// Asked are the locks that were asked for, as what:who:why:mode.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// AwaitHeld waits until so many locks are held.
func (s *Server) AwaitHeld(ctx context.Context, want int) error {
	for {
		s.mu.Lock()
		held, changed := s.held, s.changed
		s.mu.Unlock()
		if held == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d locks are held, not %d: %w", held, want, ctx.Err())
		case <-changed:
		}
	}
}

func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(do)
}

func (s *Server) changeLocked(do func()) {
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// manage is logind's interface.
type manage struct{ s *Server }

// Inhibit gives a lock, which is held until its descriptor is closed.
func (m manage) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.closed {
		return 0, dbus.MakeFailedError(errors.New("it has ended"))
	}
	if m.s.preparing {
		return 0, dbus.NewError("org.freedesktop.login1.OperationInProgress", []any{"The operation inhibition has been requested for is already running"})
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	m.s.changeLocked(func() {
		m.s.asked = append(m.s.asked, strings.Join([]string{what, who, why, mode}, ":"))
		m.s.held++
		m.s.sent, m.s.given = append(m.s.sent, writer), append(m.s.given, reader)
	})
	m.s.watched.Go(func() {
		_, _ = reader.Read(make([]byte, 1)) // Until the other side is closed.
		_ = reader.Close()
		m.s.change(func() { m.s.held-- })
	})
	fd := dbus.UnixFD(writer.Fd()) //nolint:gosec // A descriptor.
	// It is sent after this returns, and this process' own must go then.
	time.AfterFunc(time.Second, func() { _ = writer.Close() })
	return fd, nil
}

// properties are logind's.
type properties struct{ s *Server }

// Get gives one.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	switch name {
	case "InhibitDelayMaxUSec":
		return dbus.MakeVariant(uint64(p.s.delay.Microseconds())), nil //nolint:gosec // Some seconds.
	case "PreparingForShutdown":
		return dbus.MakeVariant(p.s.preparing), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("there is no %s", name))
}

// units is systemd's interface.
type units struct{ s *Server }

// KillUnit has logind read its configuration: some time later, as the real one.
func (u units) KillUnit(unit, _ string, signal int32) *dbus.Error {
	if unit != "systemd-logind.service" || signal != 1 {
		return dbus.MakeFailedError(fmt.Errorf("signal %d to %s", signal, unit))
	}
	time.AfterFunc(150*time.Millisecond, func() {
		data, err := os.ReadFile(u.s.dropIn)
		m := regexp.MustCompile(`(?s)\[Login\]\n.*InhibitDelayMaxSec=(\d+)\n`).FindSubmatch(data)
		if err != nil || m == nil {
			return
		}
		seconds, err := strconv.Atoi(string(m[1]))
		if err == nil {
			u.s.change(func() { u.s.delay = time.Duration(seconds) * time.Second })
		}
	})
	return nil
}
