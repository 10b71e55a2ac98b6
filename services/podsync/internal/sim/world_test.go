package sim

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// world is one simulation.
type world struct {
	t        *testing.T
	seed     int64
	dir      string
	scenario *scenario
	sabotage *sabotage // nil but in the tests of the judge
	rt       *fakecri.Runtime
	api      *fakeapiserver.Server
	mounts   *mount.Fake
	judge    *judge
	trace    *trace
	prober   *prober
	disks    *disks
	attacher *attacher
	notifier *notifier
	log      logr.Logger
	story    *slog.Logger // nil unless one seed is told

	noisy   atomic.Bool
	closing atomic.Bool
	misled  atomic.Bool // see misleads
	stuck   atomic.Bool // see sticks
	lives   sync.WaitGroup

	mu      sync.Mutex
	life    *life
	calls   map[string]int // by subject, see fate
	crashed int
	pause   time.Duration // see away
}

func newWorld(t *testing.T, seed int64, dir string, s *sabotage) *world {
	w := &world{
		t: t, seed: seed, dir: dir, sabotage: s, scenario: newScenario(seed), mounts: mount.NewFake(),
		notifier: &notifier{}, calls: map[string]int{}, log: unread(),
	}
	if s != nil && s.scenario != nil {
		w.scenario = s.scenario(seed)
	}
	if *oneSeed != 0 && testing.Verbose() {
		w.story = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: plainTime}))
		w.log = logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: plainTime}))
	}
	var err error
	w.trace, err = newTrace(seed, dir)
	w.must(err)
	w.prober = &prober{w: w}
	w.disks, w.attacher = newDisks(w), newAttacher(w)
	w.judge = newJudge(w)
	criFaults := fakecri.RandomFaults(seed, w.scenario.cri)
	w.rt = fakecri.New(fakecri.Config{
		Seed: seed, NoEvents: w.scenario.noEvents, Script: w.script, Latency: latency(), OnTransition: w.judge.transition,
		Teardown: w.teardown,
		Registry: map[string]fakecri.RemoteImage{goodImage: {PullDelay: pulledIn}, newImage: {PullDelay: 300 * time.Millisecond}, privateImage: {PullDelay: 500 * time.Millisecond, Password: rightPassword}},
		Faults: func(ctx context.Context, method string, req any) fakecri.Fault {
			if !w.noisy.Load() {
				return fakecri.Fault{}
			}
			if w.stuck.Load() && strings.HasSuffix(method, "RemoveContainer") {
				return fakecri.Fault{Err: status.Error(codes.Unknown, "device or resource busy")}
			}
			f := criFaults(ctx, method, req)
			if q, ok := req.(*runtimeapi.ExecSyncRequest); ok && f.Hang && q.GetCmd()[0] == postStart { // may take a day
				f.Hang, f.Delay = false, 20*time.Second
			}
			if _, ok := req.(*runtimeapi.PullImageRequest); ok && f.Hang { // the runtime gives up what makes no progress
				f.Hang, f.Delay, f.Err = false, 4*time.Minute, status.Error(codes.Unknown, "no progress")
			}
			return f
		},
	})
	apiFaults := fakeapiserver.RandomFaults(seed, w.scenario.api)
	w.api = fakeapiserver.New(fakeapiserver.Config{
		Seed: seed, OnWrite: w.judge.write,
		Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if !w.noisy.Load() {
				return fakeapiserver.Fault{}
			}
			if w.misled.Load() && q.Verb == "patch" && q.Subresource == "status" {
				return fakeapiserver.Fault{Status: http.StatusNotFound}
			}
			return apiFaults(q)
		},
	})
	return w
}

// unread is a log that nobody reads. It is written all the same, for what is in it may be
// more than can be, but not of exact seeds: they are many.
func unread() logr.Logger {
	if *nursery {
		return logr.FromSlogHandler(slog.DiscardHandler)
	}
	return logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil))
}

func latency() map[string]time.Duration {
	return map[string]time.Duration{
		"RunPodSandbox": 90 * time.Millisecond, "CreateContainer": 5 * time.Millisecond, "StartContainer": 40 * time.Millisecond,
		"StopPodSandbox": 60 * time.Millisecond, "RemoveContainer": 10 * time.Millisecond, "RemovePodSandbox": 20 * time.Millisecond,
		"CNI DEL": 30 * time.Millisecond,
	}
}

// plainTime shows virtual time as the time since the start.
func plainTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.String("t", a.Value.Time().UTC().Format("15:04:05.000"))
	}
	return a
}

// tell adds to the story of a seed that is replayed.
func (w *world) tell(what string, args ...any) {
	w.trace.note("%s %v", what, args)
	if w.story != nil {
		w.story.Info("== "+what, args...)
	}
}

// script is what a container's process does.
func (w *world) script(p fakecri.Process) *fakecri.Script {
	name := p.Container.GetMetadata().GetName()
	sub := w.subject(p.Sandbox.GetMetadata().GetName())
	if sub == nil {
		return nil
	}
	s := sub.scripts[name]
	if s.Exec == nil {
		s.Exec = func(fakecri.ExecCall) fakecri.ExecResult { return sub.hooks[name] }
	}
	return &s
}

// subject finds a pod of the scenario by its name or its mirror's.
func (w *world) subject(pod string) *subject {
	return w.scenario.byName[strings.TrimSuffix(pod, "-"+nodeName)]
}

// run plays the scenario, lets things become quiet, ends everything, and
// judges each of these.
func (w *world) run() {
	w.prepare()
	began := time.Now()
	w.noisy.Store(w.scenario.faulty)
	w.lives.Go(w.keepAlive)
	for _, a := range w.scenario.acts {
		passUntil(began.Add(a.at))
		w.tell("ACT " + a.what)
		a.do(w)
	}
	passUntil(began.Add(w.scenario.noisy))
	w.becomeQuiet()
	if w.converge("as it was asked for") {
		time.Sleep(settling)
		if w.converge("as it was asked for") {
			w.staysQuiet()
		}
	}
	w.removeAll()
	w.converge("empty")
	w.stop()
	w.api.Close()
	w.rt.Close()
}

// settling is how long what has begun may take to come to its end: processes
// that end once more, and ends of which no event told, which a list finds.
const settling = 90 * time.Second

func passUntil(at time.Time) {
	if d := time.Until(at); d > 0 {
		time.Sleep(d)
	}
}

// stop ends podsync, which must leave the runtime as it is.
func (w *world) stop() {
	w.tell("STOP")
	w.closing.Store(true)
	w.mu.Lock()
	l := w.life
	w.mu.Unlock()
	before := len(w.rt.History())
	l.stop()
	w.lives.Wait()
	if now := w.rt.History(); len(now) != before {
		w.judge.fail("stopping podsync changed the runtime: %+v", now[before:])
	}
}

func (w *world) prepare() {
	ctx := w.t.Context()
	for _, d := range []string{"root", "logs/pods", "manifests"} {
		w.must(os.MkdirAll(filepath.Join(w.dir, d), 0o755))
	}
	list := v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(nodeCPU, resource.DecimalSI), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("250"),
	}
	admin := w.api.Admin().CoreV1()
	_, err := admin.Nodes().Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status: v1.NodeStatus{
			Capacity: list, Allocatable: list,
			Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: hostIP}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.must(w.configMap("config", "1"))
	_, err = admin.Secrets(namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, Data: map[string][]byte{"b": []byte("2")}}, metav1.CreateOptions{})
	w.must(err)
	for name, password := range pullSecrets() {
		_, err = admin.Secrets(namespace).Create(ctx, pullSecret(name, password), metav1.CreateOptions{})
		w.must(err)
	}
	w.prepareDrivers()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// becomeQuiet ends all faults.
func (w *world) becomeQuiet() {
	w.tell("QUIET")
	w.noisy.Store(false)
	w.api.Heal()
	w.rt.SetDown(false)
	w.rt.SetNetworkReady(true)
	w.prober.late(0)
	w.calmDrivers()
}

// notifier stands in for inotify on the manifests' directory.
type notifier struct {
	mu      sync.Mutex
	changed map[int]func()
	next    int
}

func (n *notifier) Notify(ctx context.Context, _ string, changed func()) error {
	n.mu.Lock()
	if n.changed == nil {
		n.changed = map[int]func(){}
	}
	id := n.next
	n.next++
	n.changed[id] = changed
	n.mu.Unlock()
	<-ctx.Done()
	n.mu.Lock()
	delete(n.changed, id)
	n.mu.Unlock()
	return nil
}

func (n *notifier) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.changed {
		f()
	}
}
