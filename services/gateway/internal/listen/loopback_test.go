package listen

import (
	"errors"
	"io"
	"net"
	"testing"
)

// peers is a listener at an address to which peers have come.
type peers struct {
	net.Listener
	at   string
	from []string
	conn []net.Conn
}

func (p *peers) Addr() net.Addr { return tcp(p.at) }

func (p *peers) Accept() (net.Conn, error) {
	if len(p.from) == 0 {
		return nil, errors.New("no more")
	}
	ours, theirs := net.Pipe()
	p.conn = append(p.conn, theirs)
	conn := peerConn{ours, tcp(p.from[0])}
	p.from = p.from[1:]
	return conn, nil
}

type peerConn struct {
	net.Conn
	remote net.Addr
}

func (c peerConn) RemoteAddr() net.Addr { return c.remote }

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4194} }

func TestALoopbackPortAnswersOnlyLoopback(t *testing.T) {
	for _, c := range []struct {
		at   string
		from []string
		want []string
	}{
		{"127.0.0.1", []string{"10.0.0.5", "127.0.0.1", "192.168.1.1", "127.9.9.9"}, []string{"127.0.0.1", "127.9.9.9"}},
		{"::1", []string{"2001:db8::1", "::1"}, []string{"::1"}},
		{"0.0.0.0", []string{"10.0.0.5", "127.0.0.1"}, []string{"10.0.0.5", "127.0.0.1"}},
	} {
		sock := &peers{at: c.at, from: c.from}
		dropped := 0
		l := onlyLocal(sock, func() { dropped++ })
		for _, want := range c.want {
			conn, err := l.Accept()
			if err != nil || conn.RemoteAddr().(*net.TCPAddr).IP.String() != want { //nolint:forcetypeassert // tcp's
				t.Fatalf("%s: %v %v, want %s", c.at, conn, err, want)
			}
			conn.Close()
		}
		if dropped != len(c.from)-len(c.want) {
			t.Errorf("%s: %d were dropped", c.at, dropped)
		}
		// Who was dropped got nothing and is cut off.
		if _, err := io.ReadAll(sock.conn[0]); err != nil {
			t.Errorf("%s: %v", c.at, err)
		}
	}
}
