package assigned

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

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
)

var errKilled = errors.New("killed")

// owned is a node whose configuration has an owner that may be killed at a step: before
// and after each thing that it does. Services that cannot run something do not answer.
type owned struct {
	*aNode
	dir    string
	source *Source

	mu     sync.Mutex
	put    *kubeletconfig.Loaded
	sums   map[string]string // of what was put, by service
	states []liveconf.State
	// restarts counts those of services.
	restarts map[string]int
	bad      func(*kubeletconfig.Loaded) bool
	killAt   int
	steps    int

	controller *liveconf.Controller
	stop       context.CancelFunc
	done       chan struct{}
}

// start is that of an owner; running: the services run already.
func (o *owned) start(running bool) {
	o.Helper()
	o.source = Open(o.cfg)
	o.controller = liveconf.New(liveconf.Config{
		Dir: o.dir, Node: "n", Args: []string{"--hostname-override=n"}, Services: []string{"podsync", "nodestatus"}, Load: o.source.Load, Over: stepping{o},
		Running: running, Log: logr.Discard(),
	})
	sources, err := o.source.Load()
	chosen, _, err := o.controller.Start(sources, err)
	if err != nil {
		o.Fatal(err)
	}
	o.source.Runs(chosen)
	o.take(chosen)
	var ctx context.Context
	ctx, o.stop = context.WithCancel(context.Background())
	o.done = make(chan struct{})
	go func() {
		defer close(o.done)
		defer func() {
			if r := recover(); r != nil && r != errKilled {
				panic(r)
			}
		}()
		_ = o.controller.Run(ctx, o)
	}()
}

// take has all services run a configuration.
func (o *owned) take(l *kubeletconfig.Loaded) {
	sums, fields := map[string]string{}, l.Fields()
	for _, name := range service.ServersFirst() {
		sums[name] = configslice.Checksum(fields, name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put, o.sums = l, sums
}

func (o *owned) step() {
	o.mu.Lock()
	o.steps++
	kill := o.steps == o.killAt
	o.mu.Unlock()
	if kill {
		panic(errKilled)
	}
}

func (o *owned) assign(d *Document) {
	o.source.assign(d)
	o.controller.Changed()
}

func (o *owned) Put(l *kubeletconfig.Loaded, _ uint64) error {
	o.step()
	o.source.Runs(l)
	o.step()
	o.take(l)
	o.step()
	return nil
}

func (o *owned) Restart(service string) error {
	o.step()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.restarts == nil {
		o.restarts = map[string]int{}
	}
	o.restarts[service]++
	return nil
}

func (o *owned) Change(string) error { o.step(); return nil }

func (o *owned) Ask(_ context.Context, service string) (liveconf.Report, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bad(o.put) {
		return liveconf.Report{}, errors.New("it does not start")
	}
	return liveconf.Report{Checksum: o.sums[service]}, nil
}

func (*owned) Processors(string) (schedstat.Times, bool) { return schedstat.Times{}, false }

func (o *owned) Say(s liveconf.State) {
	o.mu.Lock()
	o.states = append(o.states, s)
	o.mu.Unlock()
	o.step()
}

// stepping is the source, with steps around each call.
type stepping struct{ o *owned }

func (s stepping) LeftOut() liveconf.State { return s.o.source.LeftOut() }
func (s stepping) Retry()                  { s.o.source.Retry() }

func (s stepping) Good(l *kubeletconfig.Loaded) bool {
	s.o.step()
	defer s.o.step()
	return s.o.source.Good(l)
}

func (s stepping) Bad(bad, instead *kubeletconfig.Loaded, why, file string) bool {
	s.o.step()
	defer s.o.step()
	return s.o.source.Bad(bad, instead, why, file)
}

// TestWhereverTheOwnerIsKilledTheSameConfigurationRunsInTheEnd has a good configuration
// assigned and a bad one after it, with an owner that is killed at each step in turn; at
// each fourth one without POLYLET_LONG_TESTS.
func TestWhereverTheOwnerIsKilledTheSameConfigurationRunsInTheEnd(t *testing.T) {
	killed, stride := 0, 4
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		stride = 1
	}
	for killAt := 1; killAt == 1 || killAt == killed+stride; killAt += stride {
		synctest.Test(t, func(t *testing.T) {
			o := &owned{aNode: newNode(t), dir: filepath.Join(t.TempDir(), "kept"), killAt: killAt, bad: func(l *kubeletconfig.Loaded) bool { return l.Config.MaxPods == 30 }}
			o.start(false)
			after := func(d time.Duration) {
				time.Sleep(d)
				select {
				case <-o.done:
					killed = killAt
					o.start(true)
					time.Sleep(d)
				default:
				}
				synctest.Wait()
			}
			after(3 * time.Minute)
			o.assign(doc("1", "maxPods: 20\n"))
			after(3 * time.Minute)
			if l := o.put; l.Config.MaxPods != 20 {
				t.Errorf("killed at step %d: %d pods with the good one", killAt, l.Config.MaxPods)
			}
			o.assign(doc("2", "maxPods: 30\n"))
			after(5 * time.Minute)
			last := o.states[len(o.states)-1]
			if l := o.put; l.Config.MaxPods != 20 || last.Phase != liveconf.WentBack || last.Of != "ConfigMap ns/c" || !strings.Contains(last.Text(), "correct ConfigMap ns/c, or") || !strings.Contains(last.Error, "maxPods: 20 → 30") {
				t.Errorf("killed at step %d: %d pods, %+v", killAt, l.Config.MaxPods, last)
			}
			if v := o.source.View(); v.Assigned != "ns/c@2" || v.Active != "ns/c@1" || v.LastKnownGood != "ns/c@1" || v.Error == "" {
				t.Errorf("killed at step %d: %+v", killAt, v)
			}
			o.write("maxPods: 10\npodPidsLimit: 7\n")
			o.controller.Changed()
			after(3 * time.Minute)
			if l := o.put; l.Config.MaxPods != 20 || *l.Config.PodPidsLimit != 7 || o.states[len(o.states)-1].Phase != liveconf.WentBack {
				t.Errorf("killed at step %d: an edit of the file: %d pods, %d pids, %+v", killAt, l.Config.MaxPods, *l.Config.PodPidsLimit, o.states[len(o.states)-1])
			}
			o.assign(doc("3", "maxPods: 40\n"))
			after(3 * time.Minute)
			if l := o.put; l.Config.MaxPods != 40 || o.states[len(o.states)-1].Phase != liveconf.Good || o.source.View().Error != "" {
				t.Errorf("killed at step %d: a good one at last: %d pods, %+v", killAt, l.Config.MaxPods, o.states[len(o.states)-1])
			}
			o.stop()
			<-o.done
		})
	}
	if killed < 20 {
		t.Errorf("only %d steps", killed)
	}
}

func TestAFileAndAConfigMapThatChangeAtOnceAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owned{aNode: newNode(t), dir: filepath.Join(t.TempDir(), "kept"), bad: func(l *kubeletconfig.Loaded) bool { return l.Config.MaxPods == 30 }}
		o.start(false)
		time.Sleep(3 * time.Minute)
		o.write("maxPods: 10\npodPidsLimit: 7\n")
		o.assign(doc("1", "maxPods: 30\n"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if l := o.put; l.Config.MaxPods != 10 || *l.Config.PodPidsLimit != 7 {
			t.Errorf("%d pods, %d pids: the file's change went with the ConfigMap's", l.Config.MaxPods, *l.Config.PodPidsLimit)
		}
		o.assign(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := o.states[len(o.states)-1]; s.Phase != liveconf.Good || s.Error != "" {
			t.Errorf("taken away: %+v", s)
		}
		o.stop()
		<-o.done
	})
}
