package observe

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// sink keeps what it is told.
type sink struct {
	mu   sync.Mutex
	pods map[types.UID]podstate.Observed
	// states holds every state that a container was told in, in order.
	states map[string][]podstate.ContainerState
	seen   int
	last   Runtime
}

func (s *sink) Observe(uid types.UID, o podstate.Observed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[uid] = o
	for _, c := range o.Containers {
		if said := s.states[c.ID]; len(said) == 0 || said[len(said)-1] != c.State {
			s.states[c.ID] = append(said, c.State)
		}
	}
}
func (s *sink) RuntimeSeen()             { s.mu.Lock(); s.seen++; s.mu.Unlock() }
func (s *sink) RuntimeChanged(r Runtime) { s.mu.Lock(); s.last = r; s.mu.Unlock() }

func (s *sink) runtime() Runtime { s.mu.Lock(); defer s.mu.Unlock(); return s.last }
func (s *sink) wholes() int      { s.mu.Lock(); defer s.mu.Unlock(); return s.seen }

func (s *sink) get(uid types.UID) podstate.Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

func (s *sink) told(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, told := s.pods[uid]
	return told
}

type rig struct {
	t      *testing.T
	dir    string
	rt     *fakecri.Runtime
	sink   *sink
	obs    *Observer
	client *cri.Client
	health *health.Tracker
	reg    *prometheus.Registry
}

// counted is how many observations a histogram has.
func counted(t *testing.T, reg *prometheus.Registry, name string) (n uint64) {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			n += f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

func newRig(t *testing.T, cfg fakecri.Config) *rig {
	cfg.Images = append(cfg.Images, "app:1")
	r := &rig{t: t, dir: t.TempDir(), reg: prometheus.NewRegistry(), rt: fakecri.New(cfg), sink: &sink{pods: map[types.UID]podstate.Observed{}, states: map[string][]podstate.ContainerState{}}}
	r.health = health.NewTracker(logr.Discard())
	conn, err := r.rt.Dial(t.Context(), cri.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	r.client = cri.New(cri.Config{}, conn, conn, nil)
	r.obs = New(Config{PodsDir: filepath.Join(r.dir, "pods"), PodLogsDir: filepath.Join(r.dir, "logs")}, Deps{Client: r.client, Sink: r.sink, Health: r.health, Metrics: metrics.New(r.reg)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.obs.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; _ = conn.Close(); r.rt.Close() })
	return r
}

// start makes a pod with one running container behind the observer's back.
func (r *rig) start(uid string, annotations map[string]string) (sandbox, container string) {
	r.t.Helper()
	ctx := context.Background()
	labels := map[string]string{cri.LabelPodUID: uid, cri.LabelPodName: uid, cri.LabelPodNamespace: "ns"}
	sc := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid}, Labels: labels}
	sb, err := r.rt.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sc})
	if err != nil {
		r.t.Fatal(err)
	}
	cl := maps.Clone(labels)
	cl[cri.LabelContainerName] = "c"
	cc := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "app:1"}, Labels: cl, Annotations: annotations,
	}
	if path := annotations[cri.AnnotationTerminationMessagePath]; path != "" {
		cc.Mounts = []*runtimeapi.Mount{{ContainerPath: path, HostPath: filepath.Join(r.dir, "pods", uid, "containers", "c", "message")}}
		if err := os.MkdirAll(filepath.Dir(cc.Mounts[0].HostPath), 0o700); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(cc.Mounts[0].HostPath, []byte(strings.Repeat("x", 5000)+"bye"), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	c, err := r.rt.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: cc, SandboxConfig: sc})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.rt.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		r.t.Fatal(err)
	}
	return sb.GetPodSandboxId(), c.GetContainerId()
}

func (r *rig) state(uid types.UID) podstate.ContainerState {
	o := r.sink.get(uid)
	if len(o.Containers) == 0 {
		return -1
	}
	return o.Containers[0].State
}

func TestWhatHappensIsToldByEventsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		time.Sleep(5 * time.Second)
		before := r.rt.Calls()
		_, c := r.start("u", map[string]string{cri.AnnotationRestartCount: "3", cri.AnnotationBackoff: "20s", cri.AnnotationHash: "abc"})
		synctest.Wait()
		o := r.sink.get("u")
		if !o.Known || r.state("u") != podstate.StateRunning || len(o.Sandboxes) != 1 || !o.Sandboxes[0].Ready || len(o.Sandboxes[0].IPs) != 1 {
			t.Fatalf("observed %+v", o)
		}
		if got := o.Containers[0]; got.RestartCount != 3 || got.Backoff != 20*time.Second || got.SpecHash != "abc" || got.Name != "c" {
			t.Errorf("container %+v", got)
		}
		_ = r.rt.Exit(c, 7, "")
		synctest.Wait()
		if got := r.sink.get("u").Containers[0]; got.State != podstate.StateExited || got.ExitCode != 7 || got.FinishedAt.IsZero() {
			t.Errorf("after the exit %+v", got)
		}
		after := r.rt.Calls()
		for _, m := range []string{"ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus"} {
			if after[m] != before[m] {
				t.Errorf("%s was called though events said all", m)
			}
		}
	})
}

func TestARuntimeWithoutEventsIsListedEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{NoEvents: true})
		time.Sleep(5 * time.Second)
		sb, c := r.start("u", nil)
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if r.state("u") != podstate.StateRunning {
			t.Errorf("observed %+v", r.sink.get("u"))
		}
		_ = r.rt.Exit(c, 1, "")
		time.Sleep(1200 * time.Millisecond)
		if r.state("u") != podstate.StateExited {
			t.Errorf("after the exit %+v", r.sink.get("u"))
		}
		if _, err := r.rt.Runtime().RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1200 * time.Millisecond)
		if o := r.sink.get("u"); len(o.Sandboxes)+len(o.Containers) != 0 || !o.Known {
			t.Errorf("after the removal %+v", o)
		}
		if r.obs.Runtime().Events {
			t.Error("it says that events come")
		}
	})
}

func TestStatesNeverGoBackWhateverTheOrderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range int64(30) {
			faults := fakecri.RandomFaults(seed, fakecri.Rates{DropEvent: .2, DupEvent: .3, DelayEvent: .6, MaxDelay: 3 * time.Second})
			r := newRig(t, fakecri.Config{Faults: faults})
			time.Sleep(time.Second)
			sb, c := r.start("u", nil)
			time.Sleep(time.Second)
			_ = r.rt.Exit(c, 0, "")
			_, _ = r.rt.Runtime().StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
			_ = r.obs.Refresh(t.Context(), "u")
			_, _ = r.rt.Runtime().RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
			_ = r.obs.Refresh(t.Context(), "u")
			time.Sleep(5 * time.Second)
			synctest.Wait()
			said := r.sink.states[c]
			for i := 1; i < len(said); i++ {
				if said[i] < said[i-1] {
					t.Errorf("seed %d: states %v", seed, said)
				}
			}
			if o := r.sink.get("u"); len(o.Containers)+len(o.Sandboxes) != 0 {
				t.Errorf("seed %d: what was removed came back: %+v", seed, o)
			}
		}
	})
}
