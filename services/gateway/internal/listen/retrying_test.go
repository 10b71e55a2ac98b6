package listen

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
)

// poor is a socket of a process that has no descriptor left for some time.
type poor struct {
	failures int
	// everyOther attempt fails, without an end.
	everyOther bool
	err        error
	asked      int
	closed     chan struct{}
}

func (p *poor) Accept() (net.Conn, error) {
	p.asked++
	if p.everyOther && p.asked%2 == 0 {
		conn, _ := net.Pipe()
		return conn, nil
	}
	if p.everyOther || p.asked <= p.failures {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", p.err)}
	}
	<-p.closed
	return nil, net.ErrClosed
}

func (p *poor) Close() error   { close(p.closed); return nil }
func (p *poor) Addr() net.Addr { return &net.TCPAddr{} }

func TestAPortOutlivesThatTheProcessHasNoDescriptorsLeft(t *testing.T) {
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EHOSTUNREACH} {
		synctest.Test(t, func(t *testing.T) {
			sock := &poor{failures: 20, err: cause, closed: make(chan struct{})}
			var said atomic.Int32
			log := funcr.New(func(string, string) { said.Add(1) }, funcr.Options{})
			retrying := newRetrying(sock, log)
			g := &greeter{sock: newDoor(retrying, DefaultLimits(), func() {}), log: log, certified: newQueue(sock.Addr()), unknown: newQueue(sock.Addr())}
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- g.run(t.Context()) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("%v ended the port after %s: %v", cause, time.Since(began), <-ended)
			}
			if sock.asked != sock.failures+1 {
				t.Errorf("%v: asked %d times in a minute, want %d", cause, sock.asked, sock.failures+1)
			}
			if n := said.Load(); n != 1 {
				t.Errorf("%v: %d lines in the log, want 1", cause, n)
			}
			_ = retrying.Close()
			if err := <-ended; err != net.ErrClosed { //nolint:errorlint // the very one
				t.Errorf("%v: a port that is closed ends with %v", cause, err)
			}
		})
	}
}

func TestASocketThatFailsNowAndThenDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		log := funcr.New(func(string, string) { said++ }, funcr.Options{})
		sock := newRetrying(&poor{everyOther: true, err: syscall.EMFILE}, log)
		began := time.Now()
		for time.Since(began) < 150*time.Second {
			conn, err := sock.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		if said != 3 {
			t.Errorf("%d lines in two and a half minutes, want 3", said)
		}
	})
}
