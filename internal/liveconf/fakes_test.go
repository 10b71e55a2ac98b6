package liveconf

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
)

// errKilled is how a polylet run ends that is killed at a step.
var errKilled = errors.New("killed")

// fakeNode runs services as supervise does: what crashes is started again and again,
// ever later, and each end is told.
type fakeNode struct {
	t    *testing.T
	dir  string
	file string
	args []string

	mu       sync.Mutex
	put      *kubeletconfig.Loaded
	runs     map[string]string // checksums, of those that are up
	restarts []string
	changes  []string // of services that run on
	deaf     bool     // services take nothing while they run
	states   []State
	lines    []string
	killAt   int // the step of Put, Restart or Say at which polylet run is killed; 0: never
	steps    int
	check    func(*kubeletconfig.Loaded) error
	// crashes, lacks and ill say what a configuration does to a service.
	crashes func(service string, l *kubeletconfig.Loaded) bool
	lacks   func(service string, l *kubeletconfig.Loaded) map[string]string
	ill     func(service string, l *kubeletconfig.Loaded) string
	answers func(context.Context) error
	missing string // a service that does not run
	// processors are what it has had of them; nil: nobody knows.
	processors func(service string) (schedstat.Times, bool)
	build      string
	running    bool  // the next start is none of the node
	ended      error // of Run

	controller *Controller
	stop       context.CancelFunc
	done       chan struct{}
	loops      sync.WaitGroup
	looping    map[string]context.CancelFunc
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	dir := t.TempDir()
	return &fakeNode{
		t: t, dir: filepath.Join(dir, "kept"), args: []string{"--hostname-override=n"}, file: filepath.Join(dir, "kubelet.yaml"), runs: map[string]string{}, looping: map[string]context.CancelFunc{},
		crashes: func(string, *kubeletconfig.Loaded) bool { return false },
		lacks:   func(string, *kubeletconfig.Loaded) map[string]string { return nil },
		ill:     func(string, *kubeletconfig.Loaded) string { return "" },
	}
}

// write changes the operator's file and says so.
func (f *fakeNode) write(text string) {
	f.t.Helper()
	document := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text
	if strings.HasPrefix(text, "raw:") {
		document = strings.TrimPrefix(text, "raw:")
	}
	if err := os.WriteFile(f.file, []byte(document), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if f.controller != nil {
		f.controller.Changed()
	}
}

func (f *fakeNode) load() (*kubeletconfig.Loaded, error) {
	return kubeletconfig.Load(append([]string{"--config=" + f.file}, f.args...))
}

// start is a start of polylet run and of all services.
func (f *fakeNode) start() error {
	log := funcr.New(func(_, args string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lines = append(f.lines, args)
	}, funcr.Options{})
	f.controller = New(Config{Dir: f.dir, Args: f.args, Services: service.ServersFirst(), Load: f.load, Check: f.check, Answers: f.answers, Build: f.build, Running: f.running, Log: log})
	sources, err := f.load()
	chosen, _, err := f.controller.Start(sources, err)
	if err != nil {
		f.controller = nil
		return err
	}
	f.mu.Lock()
	f.put = chosen
	f.mu.Unlock()
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	f.done = make(chan struct{})
	for _, name := range service.ServersFirst() {
		f.run(name)
	}
	go func() {
		defer close(f.done)
		defer func() {
			if r := recover(); r != nil && r != errKilled {
				panic(r)
			}
		}()
		f.ended = f.controller.Run(ctx, f)
	}()
	return nil
}

// end is that of polylet run and all services.
func (f *fakeNode) end() {
	if f.stop == nil {
		return
	}
	f.stop()
	<-f.done
	f.mu.Lock()
	for _, stop := range f.looping {
		stop()
	}
	f.mu.Unlock()
	f.loops.Wait()
	f.runs, f.stop = map[string]string{}, nil
}

// run starts a service with what was put last.
func (f *fakeNode) run(service string) {
	ctx, cancel := context.WithCancel(context.Background())
	f.mu.Lock()
	if stop := f.looping[service]; stop != nil {
		stop()
	}
	f.looping[service] = cancel
	delete(f.runs, service)
	f.mu.Unlock()
	f.loops.Go(func() {
		for pause := 100 * time.Millisecond; ctx.Err() == nil; pause *= 2 {
			f.mu.Lock()
			put := f.put
			crash := f.crashes(service, put)
			if !crash && ctx.Err() == nil {
				f.runs[service] = configslice.Checksum(put.Fields(), service)
			}
			f.mu.Unlock()
			if !crash {
				return
			}
			f.controller.Ended(service, errors.New("exit status 1: it says why"))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
}

func (f *fakeNode) step() {
	f.mu.Lock()
	f.steps++
	kill := f.steps == f.killAt
	f.mu.Unlock()
	if kill {
		panic(errKilled)
	}
}

func (f *fakeNode) Put(l *kubeletconfig.Loaded, _ uint64) error {
	f.step()
	f.mu.Lock()
	f.put = l
	f.mu.Unlock()
	f.step()
	return nil
}

func (f *fakeNode) Restart(service string) error {
	f.step()
	f.mu.Lock()
	f.restarts = append(f.restarts, service)
	f.mu.Unlock()
	f.run(service)
	f.step()
	return nil
}

func (f *fakeNode) Change(service string) error {
	f.step()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, up := f.runs[service]; up && !f.deaf {
		f.changes = append(f.changes, service)
		f.runs[service] = configslice.Checksum(f.put.Fields(), service)
	}
	return nil
}

func (f *fakeNode) Ask(_ context.Context, service string) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum, up := f.runs[service]
	if !up || service == f.missing {
		return Report{}, errors.New("connection refused")
	}
	report := Report{Checksum: sum, Lacks: f.lacks(service, f.put)}
	if check, why, ill := strings.Cut(f.ill(service, f.put), ": "); ill {
		report.Unhealthy = map[string]string{check: why}
	}
	return report, nil
}

func (f *fakeNode) Processors(service string) (schedstat.Times, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.processors == nil {
		return schedstat.Times{}, false
	}
	return f.processors(service)
}

func (f *fakeNode) Say(s State) {
	f.mu.Lock()
	f.states = append(f.states, s)
	f.mu.Unlock()
	f.step()
}

// after lets time pass and says what runs then.
func (f *fakeNode) after(d time.Duration) (l *kubeletconfig.Loaded, s State, restarts string) {
	time.Sleep(d)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	restarts, f.restarts = strings.Join(f.restarts, " "), nil
	if len(f.states) > 0 {
		s = f.states[len(f.states)-1]
	}
	return f.put, s, restarts
}

// allRun checks that every service runs what was put last.
func (f *fakeNode) allRun(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range service.ServersFirst() {
		if want := configslice.Checksum(f.put.Fields(), name); f.runs[name] != want {
			t.Errorf("%s runs %q, not what was handed to it last", name, f.runs[name])
		}
	}
}

// said tells whether a line of the log has all words.
func (f *fakeNode) said(words ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.lines {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}
