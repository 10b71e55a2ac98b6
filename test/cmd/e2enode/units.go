package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// unitSocket is where the stand-ins find the units.
const unitSocket = "/run/e2enode-units.sock"

// stopWithin is the time between SIGTERM and SIGKILL, systemd's default.
const stopWithin = 90 * time.Second

// The verbs of systemctl that the suite uses, and systemd-run's.
const (
	verbStart   = "start"
	verbKill    = "kill"
	verbStop    = "stop"
	verbRestart = "restart"
	verbReset   = "reset-failed"
	verbList    = "list-units"
)

// unitRequest is one line from a stand-in.
type unitRequest struct {
	Verb, Unit string
	// Running restricts list-units.
	Running bool
	// Dir, Log, Slice and Command describe a new unit.
	Dir, Log, Slice string
	Command         []string
}

type unitAnswer struct{ Output, Error string }

// units does for the suite what it uses systemd for: it starts programs, each in
// a process group and a cgroup of its own, and ends them. Nothing is started
// again by itself.
type units struct {
	enter string // this program
	env   []string

	mu  sync.Mutex
	all map[string]*unit
}

// unit is a program that was started once and can be started again.
type unit struct {
	request unitRequest
	pid     int
	done    chan struct{}
}

func newUnits(o order) *units {
	env := []string{"PATH=" + systemPath, "HOME=/root"}
	if bus := os.Getenv(busVariable); bus != "" {
		env = append(env, busVariable+"="+bus)
	}
	if o.Agent == agentPolylet {
		env = append(env, agentVariable+"="+o.Program)
	}
	return &units{enter: filepath.Join(o.Bin, "e2enode"), env: env, all: map[string]*unit{}}
}

// serve answers the stand-ins until the listener is closed.
func (u *units) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed at the run's end
		}
		go func() {
			defer conn.Close()
			var r unitRequest
			if err := json.NewDecoder(conn).Decode(&r); err != nil {
				return // the stand-in was killed
			}
			var a unitAnswer
			if out, err := u.do(r); err != nil {
				a.Error = err.Error()
			} else {
				a.Output = out
			}
			_ = json.NewEncoder(conn).Encode(a) // the same
		}()
	}
}

func (u *units) do(r unitRequest) (string, error) {
	switch r.Verb {
	case verbStart:
		return "", u.start(r)
	case verbList:
		return u.list(r), nil
	case verbReset:
		return "", nil // nothing here gives up starting
	}
	found, err := u.find(r.Unit)
	if err != nil {
		return "", err
	}
	switch r.Verb {
	case verbKill:
		return "", found.signal(syscall.SIGTERM)
	case verbStop:
		found.stop()
		return "", nil
	case verbRestart:
		found.stop()
		return "", u.launch(found)
	}
	return "", fmt.Errorf("systemctl: this stand-in does not know %q", r.Verb)
}

func (u *units) find(name string) (*unit, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if found := u.all[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("unit %s.service not loaded", name)
}

func (u *units) start(r unitRequest) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all[r.Unit] != nil {
		return fmt.Errorf("unit %s.service is there already", r.Unit)
	}
	fresh := &unit{request: r}
	u.all[r.Unit] = fresh
	return u.launch(fresh)
}

func (u *units) launch(it *unit) error {
	r := it.request
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", r.Unit, err)
	}
	defer log.Close()
	cgroup := filepath.Join("/", r.Slice, r.Unit+".service")
	cmd := exec.Command(u.enter, append([]string{roleEnter, cgroup}, r.Command...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.Dir, u.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.Unit, err)
	}
	done := make(chan struct{})
	it.pid, it.done = cmd.Process.Pid, done
	go func() {
		err := cmd.Wait()
		fmt.Printf("unit %s (pid %d) ended: %v\n", r.Unit, cmd.Process.Pid, err)
		close(done)
	}()
	return nil
}

func (u *units) list(r unitRequest) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var lines []string
	for name, it := range u.all {
		state := "exited"
		if it.running() {
			state = "running"
		} else if r.Running {
			continue
		}
		if matches(r.Unit, name+".service") {
			lines = append(lines, fmt.Sprintf("%s.service loaded active %s the agent\n", name, state))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

// stopAll ends every unit, at the end of the run.
func (u *units) stopAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, it := range u.all {
		it.stop()
	}
}

func (it *unit) running() bool {
	select {
	case <-it.done:
		return false
	default:
		return true
	}
}

func (it *unit) signal(sig syscall.Signal) error {
	if !it.running() {
		return nil
	}
	if err := groupOf(it.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", sig, it.request.Unit, err)
	}
	return nil
}

// stop ends the unit and waits until it is gone.
func (it *unit) stop() {
	if it.signal(syscall.SIGTERM) != nil {
		return
	}
	select {
	case <-it.done:
	case <-time.After(stopWithin):
		_ = it.signal(syscall.SIGKILL)
		<-it.done
	}
}
