package supervise

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/polylet/polylet/internal/lifeline"
	"github.com/polylet/polylet/internal/wake"
)

// A child asks itself twice in the watchdog's time, and waits a quarter of it for an
// answer. One question may stay without: a busy machine did not let it answer. So it
// may be silent for parts+1 quarters, and as the first of them may have begun before
// its last word, one tick more passes in silence. A supervisor that was stopped
// itself, with its machine say, finds one tick due when it goes on, and no more.
const (
	parts    = 4
	silences = parts + 2
)

// watched makes a child's lifeline: what the child gets, nil for none, and what is to
// be called when it was started, or was not, and when it has ended.
func (s *Supervisor) watched(c *running) (say *os.File, started func(ok bool) (ended func()), err error) {
	if s.cfg.Watchdog <= 0 {
		return nil, func(bool) func() { return func() {} }, nil
	}
	hear, say, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make the pipe on which %s says that it answers: %w", c.Name, err)
	}
	return say, func(ok bool) func() {
		_ = say.Close() // the child has its own
		if !ok {
			_ = hear.Close()
			return func() {}
		}
		beats, done := wake.New(), make(chan struct{})
		go listen(hear, beats)
		go func() {
			if silent(beats, done, s.cfg.Watchdog) {
				s.giveUp(c, done)
			}
		}()
		return func() { close(done); _ = hear.Close() }
	}, nil
}

// lifeline is what the launcher tells a child of its end, which comes after the
// sockets.
func (s *Supervisor) lifeline(sockets int) string {
	if s.cfg.Watchdog <= 0 {
		return ""
	}
	const first = 3 // os/exec: the first of ExtraFiles
	return lifeline.Value(first+sockets, s.cfg.Watchdog)
}

// listen passes on that something was said, until the pipe ends.
func listen(hear *os.File, beats wake.Signal) {
	buf := make([]byte, 64)
	for {
		if _, err := hear.Read(buf); err != nil {
			return
		}
		beats.Set()
	}
}

// silent waits until a child that has said that it answers says so no more; false
// when it ends first. What has never said it is starting, and that takes its time.
func silent(beats, done <-chan struct{}, within time.Duration) bool {
	select {
	case <-beats:
	case <-done:
		return false
	}
	part := time.NewTicker(within / parts)
	defer part.Stop()
	for missed := 0; missed < silences; {
		select {
		case <-done:
			return false
		case <-beats:
			missed = 0
		case <-part.C:
			missed++
		}
	}
	return true
}

// giveUp ends a child that hangs: with the signal that lets it write down what each
// goroutine does, then for good.
func (s *Supervisor) giveUp(c *running, done <-chan struct{}) {
	s.cfg.Log.Error(nil, "Process hangs: it does not answer on its own socket; ending it, to start it again; what its goroutines did follows",
		"process", c.Name, "silentForMoreThan", s.cfg.Watchdog.String())
	c.signal(syscall.SIGABRT)
	timer := time.NewTimer(s.cfg.StopWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		c.signal(syscall.SIGKILL)
	}
}
