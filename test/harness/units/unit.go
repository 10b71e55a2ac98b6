package units

import (
	"sync"
	"time"

	"github.com/polylet/polylet/test/harness/process"
)

// restartAfter is how long a unit that has ended is away.
const restartAfter = time.Second

// Unit is one service: started again whenever it ends, until it is stopped.
type Unit struct {
	Process *process.Process

	mu   sync.Mutex
	stop chan struct{} // closed to stop it; nil when it is not wanted
	done chan struct{} // closed when it has stopped
}

// Start wants the unit to run; it returns before it does.
func (u *Unit) Start() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop == nil {
		u.stop, u.done = make(chan struct{}), make(chan struct{})
		go u.keep(u.stop, u.done)
	}
}

// Stop ends it and returns when it has ended.
func (u *Unit) Stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop != nil {
		close(u.stop)
		<-u.done
		u.stop = nil
	}
}

// Wanted tells whether the unit runs or is about to run again.
func (u *Unit) Wanted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stop != nil
}

func (u *Unit) keep(stop, done chan struct{}) {
	defer close(done)
	for {
		if err := u.Process.Launch(); err == nil {
			select {
			case <-u.Process.Done():
			case <-stop:
				u.Process.Stop()
				return
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(restartAfter):
		}
	}
}
