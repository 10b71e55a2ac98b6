package nodeshutdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/uds"
	"github.com/polylet/polylet/internal/wake"
)

const (
	// deadline is that of each call of logind's, and of each line.
	deadline = 10 * time.Second
	// absent is how long a shutdown waits for a nodestatus that is not connected.
	absent = 10 * time.Second
	// reloads is how often it is looked whether logind goes by a longer delay, firstLook
	// before the first of these looks; then twice as long each.
	reloads   = 5
	firstLook = 100 * time.Millisecond
)

// Logind is what a Keeper needs of it; *logind.Bus has it.
type Logind interface {
	Next(ctx context.Context) (preparing bool, err error)
	Delay(ctx context.Context) (time.Duration, error)
	Preparing(ctx context.Context) (bool, error)
	Inhibit(ctx context.Context) (*os.File, error)
	Reload(ctx context.Context) error
	Close() error
}

// Config is what a Keeper needs.
type Config struct {
	// Connect connects to logind.
	Connect func(ctx context.Context) (Logind, error)
	// Period is how long a shutdown is to be delayed at most.
	Period time.Duration
	// StateFile and DropIn are the files that it writes.
	StateFile, DropIn string
	// UID may follow and say that all is done, beside root.
	UID int
}

// Keeper holds the lock. Safe for concurrent use; Run runs once.
type Keeper struct {
	cfg Config
	// peerOf says who connects; uds.PeerOf but in tests.
	peerOf func(net.Conn) (uds.Peer, error)

	mu    sync.Mutex
	state State
	// began is Since on the clock that nobody sets.
	began     time.Time
	changed   chan struct{} // closed and made anew with each change
	followers int
	// done receives the Since of a shutdown that is done with; moved when a follower
	// came or went.
	done  chan time.Time
	moved wake.Signal

	// lonely is since when nobody follows a shutdown that goes on; zero: somebody does, or
	// there is none. Of Run alone.
	lonely time.Time
}

// New returns a Keeper; it starts nothing.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, peerOf: uds.PeerOf, changed: make(chan struct{}), done: make(chan time.Time), moved: wake.New()}
}

func (k *Keeper) get() (State, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.changed
}

// tell is what is told now.
func (k *Keeper) tell() (State, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.state
	if !out.Since.IsZero() {
		out.Elapsed = max(time.Since(k.began), 1)
	}
	return out, k.changed
}

func (k *Keeper) set(change func(*State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.state
	change(&k.state)
	if k.state != before {
		close(k.changed)
		k.changed = make(chan struct{})
	}
}

// Run holds the lock and follows logind until ctx is done; then it returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: time.Second, Max: 30 * time.Second, Jitter: 0.2})
	l := &lock{}
	defer l.release()
	for {
		err := k.follow(ctx, l, retry.Reset)
		if ctx.Err() != nil {
			return nil
		}
		if s, _ := k.get(); s.Problem != err.Error() {
			klog.FromContext(ctx).Error(err, "The machine's shutdown is not followed: pods will be killed with it; it is tried again")
		}
		k.set(func(s *State) { s.Problem = err.Error() })
		if !k.pause(ctx, l, retry.Next()) {
			return nil
		}
	}
}

// pause lets time pass without logind, in which the pods may end; false: ctx is done.
func (k *Keeper) pause(ctx context.Context, l *lock, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-k.moved:
		case since := <-k.done:
			k.end(ctx, l, since)
		case <-k.alone(l):
			k.abandon(ctx, l)
		}
	}
}

// alone receives when nobody has followed a shutdown for long enough; nil while there is
// nothing to wait for.
func (k *Keeper) alone(l *lock) <-chan time.Time {
	if s, _ := k.get(); s.Since.IsZero() || l.file == nil || k.followed() {
		k.lonely = time.Time{}
		return nil
	}
	if k.lonely.IsZero() {
		k.lonely = time.Now()
	}
	return time.After(time.Until(k.lonely.Add(absent)))
}

// abandon lets a shutdown go on for which nobody ends the pods.
func (k *Keeper) abandon(ctx context.Context, l *lock) {
	klog.FromContext(ctx).Info("nodestatus is away, and nobody ends the pods: the machine's shutdown goes on", "after", absent)
	l.release()
}

// end lets the shutdown that began at since go on.
func (k *Keeper) end(ctx context.Context, l *lock, since time.Time) {
	if s, _ := k.get(); !since.IsZero() && s.Since.Equal(since) && l.file != nil {
		klog.FromContext(ctx).Info("The pods have ended: the machine's shutdown goes on", "took", time.Since(since))
		k.write(ctx, Times{StartTime: since, EndTime: time.Now()})
		l.release()
	}
}

// follow does so on one connection. The lock stays when that ends.
func (k *Keeper) follow(parent context.Context, l *lock, well func()) error {
	ctx, cancel := context.WithTimeout(parent, deadline)
	defer cancel()
	bus, err := k.cfg.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close() }() // Nothing is lost with it.
	delay, problem := k.raise(ctx, bus)
	preparing, err := bus.Preparing(ctx)
	if err != nil {
		return err
	}
	if !preparing { // logind gives none for what is under way.
		if err := l.take(ctx, bus); err != nil {
			return err
		}
	}
	k.set(func(s *State) { s.Delay, s.Problem = delay, problem })
	k.prepare(parent, preparing, k.since)
	well()
	return k.hold(parent, bus, l)
}

// hold holds the lock as the shutdowns that come want it.
func (k *Keeper) hold(parent context.Context, bus Logind, l *lock) error {
	ctx, cancel := context.WithCancel(parent)
	signals, failed := make(chan bool), make(chan error, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	listening.Go(func() {
		for {
			preparing, err := bus.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case signals <- preparing:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case <-k.moved:
		case preparing := <-signals:
			k.prepare(ctx, preparing, now)
			if !preparing {
				calling, done := context.WithTimeout(ctx, deadline)
				err := l.take(calling, bus)
				done()
				if err != nil {
					return err
				}
			}
		case since := <-k.done:
			k.end(ctx, l, since)
		case <-k.alone(l):
			k.abandon(ctx, l)
		}
	}
}

// prepare takes in whether the machine prepares for its shutdown, and since when.
func (k *Keeper) prepare(ctx context.Context, preparing bool, began func() time.Time) {
	before, _ := k.get()
	switch {
	case preparing && before.Since.IsZero():
		since := began()
		klog.FromContext(ctx).Info("The machine prepares for its shutdown, which is delayed for the pods", "after", before.Delay)
		k.write(ctx, Times{StartTime: since})
		k.set(func(s *State) {
			s.Since, k.began = since, time.Now().Add(-max(time.Since(since), 0))
		})
	case !preparing && !before.Since.IsZero():
		klog.FromContext(ctx).Info("The machine's shutdown was called off")
		k.set(func(s *State) { s.Since = time.Time{} })
	}
}

func now() time.Time { return time.Now().Round(0) }

// bootWindow is how old a start may be that this process' forerunner wrote down.
const bootWindow = 10 * time.Minute

// since is when a shutdown began that goes on already: now, unless a forerunner of this
// process has seen it begin.
func (k *Keeper) since() time.Time {
	now := now()
	if t, err := ReadTimes(k.cfg.StateFile); err == nil && t.EndTime.IsZero() && now.Sub(t.StartTime) < min(bootWindow, k.cfg.Period) && !t.StartTime.After(now) {
		return t.StartTime
	}
	return now
}

// raise has logind wait as long as it is to, and returns how long it does, and why that
// is not long enough.
func (k *Keeper) raise(ctx context.Context, bus Logind) (delay time.Duration, problem string) {
	delay, err := bus.Delay(ctx)
	if err != nil {
		return 0, err.Error()
	}
	if delay >= k.cfg.Period {
		return delay, ""
	}
	err = k.writeDropIn()
	if err == nil {
		err = bus.Reload(ctx)
	}
	for i := range reloads {
		if err != nil || delay >= k.cfg.Period {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(firstLook << i):
			delay, err = bus.Delay(ctx)
		}
	}
	if err == nil && delay >= k.cfg.Period {
		return delay, ""
	}
	return delay, errors.Join(fmt.Errorf("logind delays a shutdown by %s, and the pods' periods are %s together: set InhibitDelayMaxSec in logind.conf(5)", delay, k.cfg.Period), err).Error()
}

func (k *Keeper) writeDropIn() error {
	if err := os.MkdirAll(filepath.Dir(k.cfg.DropIn), 0o755); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	text := fmt.Sprintf("# Of polylet, for shutdownGracePeriod or shutdownGracePeriodByPodPriority.\n[Login]\nInhibitDelayMaxSec=%.0f\n", k.cfg.Period.Seconds())
	if err := fsatomic.WriteFile(k.cfg.DropIn, []byte(text), 0o644); err != nil {
		return fmt.Errorf("raise logind's delay: %w", err)
	}
	return nil
}

// write writes the state file, for people and metrics alone: what cannot be written
// keeps nothing back.
func (k *Keeper) write(ctx context.Context, t Times) {
	data, err := json.Marshal(t)
	if err == nil {
		err = fsatomic.WriteFile(k.cfg.StateFile, data, 0o644)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "When the shutdown began and ended is not written down", "path", k.cfg.StateFile)
	}
}

// ReadTimes reads a state file.
func ReadTimes(path string) (Times, error) {
	f, err := os.Open(path)
	if err != nil {
		return Times{}, err
	}
	defer f.Close()
	var t Times
	if err := json.NewDecoder(io.LimitReader(f, longestLine)).Decode(&t); err != nil {
		return Times{}, fmt.Errorf("read %s: %w", path, err)
	}
	return t, nil
}

// lock is logind's. One goroutine uses it.
type lock struct{ file *os.File }

func (l *lock) take(ctx context.Context, bus Logind) error {
	file, err := bus.Inhibit(ctx)
	if err != nil {
		return err
	}
	l.release()
	l.file = file
	return nil
}

func (l *lock) release() {
	if l.file != nil {
		_ = l.file.Close() // It is closed in any case.
		l.file = nil
	}
}
