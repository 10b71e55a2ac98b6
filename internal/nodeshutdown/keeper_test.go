package nodeshutdown

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a logind without a bus.
type memory struct {
	signals chan bool
	broken  chan struct{}

	mu        sync.Mutex
	delay     time.Duration
	preparing bool
	away      bool
	lock      *os.File
}

func (m *memory) Next(ctx context.Context) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-m.broken:
		return false, errors.New("the bus is gone")
	case p := <-m.signals:
		return p, nil
	}
}

func (m *memory) Delay(context.Context) (time.Duration, error) { return m.delay, nil }
func (m *memory) Reload(context.Context) error                 { return nil }
func (m *memory) Close() error                                 { return nil }
func (m *memory) Preparing(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.preparing, nil
}

func (m *memory) Inhibit(context.Context) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preparing {
		return nil, errors.New("already running")
	}
	var err error
	m.lock, err = os.Open(os.DevNull)
	return m.lock, err
}

// held is whether the lock that was given last is.
func (m *memory) held() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lock == nil {
		return false
	}
	_, err := m.lock.Stat()
	return err == nil
}

func (m *memory) prepare(preparing bool) {
	m.mu.Lock()
	m.preparing = preparing
	m.mu.Unlock()
	m.signals <- preparing
	synctest.Wait()
}

// keeping runs a Keeper on virtual time while do runs; follow connects a follower.
func keeping(t *testing.T, m *memory, do func(k *Keeper, follow func() (leave func()))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.signals, m.broken = make(chan bool), make(chan struct{})
		dir := t.TempDir()
		k := New(Config{
			Connect: func(context.Context) (Logind, error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.away {
					return nil, errors.New("there is no bus")
				}
				return m, nil
			},
			Period: 30 * time.Second, StateFile: filepath.Join(dir, StateFile), DropIn: filepath.Join(dir, "conf.d", "99.conf"),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := k.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		follow := func() func() {
			here, there := net.Pipe()
			running.Go(func() { k.serve(ctx, there) })
			running.Go(func() {
				for buffer := make([]byte, 512); ; {
					if _, err := here.Read(buffer); err != nil {
						return
					}
				}
			})
			return func() { _ = here.Close() }
		}
		synctest.Wait()
		do(k, follow)
		cancel()
		running.Wait()
	})
}

func TestAShutdownDoesNotWaitForANodestatusThatIsAway(t *testing.T) {
	m := &memory{delay: time.Minute}
	keeping(t, m, func(_ *Keeper, follow func() func()) {
		leave := follow()
		m.prepare(true)
		time.Sleep(25 * time.Second)
		leave()
		time.Sleep(absent / 2)
		leave = follow() // It was killed and is back.
		time.Sleep(2 * absent)
		if !m.held() {
			t.Fatal("the lock was let go although nodestatus was back")
		}
		leave()
		time.Sleep(absent + time.Second)
		if m.held() {
			t.Error("the lock is held for nobody")
		}
	})
}

func TestALockOutlivesTheBus(t *testing.T) {
	m := &memory{delay: time.Minute}
	keeping(t, m, func(k *Keeper, follow func() func()) {
		defer follow()()
		m.prepare(true)
		since, _ := k.get()
		m.mu.Lock()
		m.away = true
		m.mu.Unlock()
		close(m.broken)
		time.Sleep(5 * time.Second)
		if s, _ := k.get(); !m.held() || !s.Since.Equal(since.Since) || !strings.Contains(s.Problem, "there is no bus") {
			t.Errorf("held %v, %+v", m.held(), s)
		}
		select {
		case k.done <- since.Since:
		case <-time.After(time.Minute):
		}
		synctest.Wait()
		if m.held() {
			t.Error("the pods have ended, and the lock is held for as long as there is no bus")
		}
	})
}

func TestWithoutABusAShutdownDoesNotWaitForANodestatusThatIsAwayEither(t *testing.T) {
	for name, first := range map[string]string{"the bus went first": "bus", "nodestatus did": "nodestatus"} {
		m := &memory{delay: time.Minute}
		keeping(t, m, func(_ *Keeper, follow func() func()) {
			leave := follow()
			m.prepare(true)
			cut := func() {
				m.mu.Lock()
				m.away = true
				m.mu.Unlock()
				close(m.broken)
			}
			began := time.Now()
			if first == "bus" {
				cut()
				time.Sleep(3 * time.Second)
				began = time.Now()
				leave()
			} else {
				leave()
				time.Sleep(3 * time.Second)
				cut()
			}
			time.Sleep(time.Until(began.Add(absent - time.Second)))
			if !m.held() {
				t.Errorf("%s: the lock was let go before nodestatus could be back", name)
			}
			time.Sleep(2 * time.Second)
			if m.held() {
				t.Errorf("%s: the lock is held for nobody", name)
			}
		})
	}
}

func TestALogindThatDelaysForLessIsAProblemAndIsUsedAllTheSame(t *testing.T) {
	m := &memory{delay: 5 * time.Second}
	keeping(t, m, func(k *Keeper, _ func() func()) {
		time.Sleep(time.Minute)
		s, _ := k.get()
		if s.Delay != 5*time.Second || !strings.Contains(s.Problem, "logind delays a shutdown by 5s, and the pods' periods are 30s together") || !m.held() {
			t.Errorf("held %v, %+v", m.held(), s)
		}
		if data, err := os.ReadFile(k.cfg.DropIn); err != nil || !strings.Contains(string(data), "\n[Login]\nInhibitDelayMaxSec=30\n") {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestAShutdownAfterOneThatWasCalledOffHasTimeOfItsOwn(t *testing.T) {
	m := &memory{delay: time.Minute}
	keeping(t, m, func(k *Keeper, follow func() func()) {
		defer follow()()
		m.prepare(true)
		time.Sleep(5 * time.Second)
		m.prepare(false)
		time.Sleep(20 * time.Second)
		m.prepare(true)
		if s, _ := k.get(); !s.Since.Equal(time.Now()) || !m.held() {
			t.Errorf("it began %s ago, held %v", time.Since(s.Since), m.held())
		}
	})
}

func TestALockIsNotLetGoWithoutAShutdown(t *testing.T) {
	m := &memory{delay: time.Minute}
	keeping(t, m, func(k *Keeper, follow func() func()) {
		defer follow()()
		k.done <- time.Time{} // A line that says nothing.
		synctest.Wait()
		if !m.held() {
			t.Error("it was, and the next shutdown is not delayed")
		}
	})
}

func TestHowLongAShutdownGoesOnIsToldWhateverTheClockIsSetTo(t *testing.T) {
	m := &memory{delay: time.Minute}
	keeping(t, m, func(k *Keeper, follow func() func()) {
		defer follow()()
		if s, _ := k.tell(); s.Elapsed != 0 {
			t.Errorf("before it: %+v", s)
		}
		m.prepare(true)
		synctest.Wait()
		k.set(func(s *State) { s.Since = s.Since.Add(-time.Hour) }) // As a clock that is set has it.
		time.Sleep(7 * time.Second)
		if s, _ := k.tell(); s.Elapsed != 7*time.Second {
			t.Errorf("after 7 s: %+v", s)
		}
	})
}
