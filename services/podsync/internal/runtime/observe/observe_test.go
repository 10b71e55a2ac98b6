package observe

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

func TestLostEventsAreMadeUpForByTheSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
			return fakecri.Fault{DropEvent: m == "event"}
		}})
		time.Sleep(5 * time.Second)
		r.start("u", nil)
		time.Sleep(67 * time.Second)
		synctest.Wait()
		if r.state("u") != podstate.StateRunning {
			t.Errorf("observed %+v", r.sink.get("u"))
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

// TestPodsAreSeenThoughAllOfThemDoNotFitIntoOneMessage: hundreds of pods that have
// ended leave their sandboxes, and a runtime lists all or nothing.
func TestPodsAreSeenThoughAllOfThemDoNotFitIntoOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
			if q, ok := req.(*runtimeapi.ListPodSandboxRequest); ok && q.GetFilter() == nil {
				return fakecri.Fault{Err: tooLarge}
			}
			return fakecri.Fault{}
		}})
		for _, uid := range []string{"runs", "ended"} {
			if err := os.MkdirAll(filepath.Join(r.dir, "logs", "ns_name_"+uid), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = r.start("runs", nil)
		sandbox, container := r.start("ended", nil)
		_ = r.rt.Exit(container, 3, "")
		if _, err := r.rt.Runtime().StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("runs") != podstate.StateRunning || r.state("ended") != podstate.StateExited || len(r.sink.get("ended").Sandboxes) != 1 {
			t.Errorf("seen: %+v and %+v", r.sink.get("runs"), r.sink.get("ended"))
		}
		if r.sink.wholes() != 1 {
			t.Error("it is not said that all was seen")
		}
		for _, d := range r.health.Dependencies() {
			if !d.Ready {
				t.Errorf("%+v", d)
			}
		}
	})
}

// One pod has more, in labels and annotations or dead containers, than fits into one
// message. Nothing is known of it, so nothing is done with it; the others go on.
func TestAPodThatIsTooLargeToBeListedStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")
		var large atomic.Bool
		large.Store(true)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
			if q, ok := req.(*runtimeapi.ListContainersRequest); ok && large.Load() && (q.GetFilter() == nil || q.GetFilter().GetLabelSelector()[cri.LabelPodUID] == "large") {
				return fakecri.Fault{Err: tooLarge}
			}
			return fakecri.Fault{}
		}})
		_, _ = r.start("large", nil)
		_, other := r.start("other", nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("other") != podstate.StateRunning || r.sink.wholes() != 1 {
			t.Errorf("the other pod: %+v", r.sink.get("other"))
		}
		if o := r.sink.get("large"); o.Known || !r.sink.told("large") {
			t.Errorf("the large one is told of as known, or not at all: %+v", o)
		}
		_ = r.rt.Exit(other, 3, "")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("other") != podstate.StateExited {
			t.Errorf("the other pod after its end: %+v", r.sink.get("other"))
		}
		shown := func() (d health.Dependency) {
			all := r.health.Dependencies()
			if i := slices.IndexFunc(all, func(d health.Dependency) bool { return d.Name == "large pods" }); i >= 0 {
				d = all[i]
			}
			return d
		}
		if d := shown(); d.Ready || !strings.Contains(d.Message, "pod uid large does not fit") || !strings.Contains(d.Message, "crictl rm") {
			t.Errorf("health says %+v", d)
		}
		large.Store(false) // somebody has removed dead containers
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("large") != podstate.StateRunning || !r.sink.get("large").Known || !shown().Ready {
			t.Errorf("afterwards: %+v, %+v", r.sink.get("large"), shown())
		}
		// What is known stays while it is too large again.
		large.Store(true)
		time.Sleep(5 * time.Second)
		if r.state("large") != podstate.StateRunning || !r.sink.get("large").Known {
			t.Errorf("what was known is not any more: %+v", r.sink.get("large"))
		}
	})
}

func TestThatPodsAreListedOneByOneIsSaidOnce(t *testing.T) {
	var said []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{}))
	o := New(Config{}, Deps{})
	for _, pods := range []bool{false, true, true, false, false} {
		o.listedBy(ctx, pods)
	}
	if len(said) != 2 || !strings.Contains(said[0], "does not fit") || !strings.Contains(said[1], "fits into one of its messages again") {
		t.Errorf("said %q", said)
	}
}

func TestThatNothingCanBeListedIsShownThoughTheRuntimeSaysThatItIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
			if method == "ListContainers" && broken.Load() {
				return fakecri.Fault{Err: status.Error(codes.Internal, "the database is damaged")}
			}
			return fakecri.Fault{}
		}})
		shown := func() (text string) {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, d := range r.health.Dependencies() {
				if !d.Ready {
					text += d.Name + ": " + d.Message
				}
			}
			return text
		}
		if text := shown(); !strings.Contains(text, "containers: ") || !strings.Contains(text, "the database is damaged") {
			t.Errorf("while nothing can be listed it shows %q", text)
		}
		// KubeletPlegDurationHigh is an alert on this histogram.
		if n := counted(t, r.reg, "kubelet_pleg_relist_duration_seconds"); n < 2 {
			t.Errorf("%d attempts were counted", n)
		}
		if n := counted(t, r.reg, "kubelet_pleg_relist_interval_seconds"); n < 1 {
			t.Errorf("%d intervals between attempts were counted", n)
		}
		broken.Store(false)
		if text := shown(); text != "" {
			t.Errorf("after it was mended it shows %q", text)
		}
	})
}

func TestAPodThatCannotBeLookedAtHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Value // the id of the container whose status hangs
		hung.Store("")
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, m string, req any) fakecri.Fault {
			q, ok := req.(*runtimeapi.ContainerStatusRequest)
			return fakecri.Fault{Hang: ok && hung.Load() != "" && q.GetContainerId() == hung.Load()}
		}})
		time.Sleep(3 * time.Second)
		_, id := r.start("a", nil)
		hung.Store(id)
		for _, uid := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
			r.start(uid, nil)
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if r.state("k") != podstate.StateRunning || r.state("b") != podstate.StateRunning {
			t.Error("others were not seen")
		}
		hung.Store("")
		time.Sleep(30 * time.Second)
		if o := r.sink.get("a"); !o.Known || r.state("a") != podstate.StateRunning {
			t.Errorf("the pod was not seen after the hang: %+v", o)
		}
	})
}

// What an action that failed has done all the same is not known before the pod was
// looked at.
func TestAPodIsLookedAtUntilItIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int32
		refused.Store(1 << 30)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
			if strings.Contains(m, "ListPodSandbox") && refused.Add(-1) >= 0 {
				return fakecri.Fault{Err: status.Error(codes.Internal, "not now")}
			}
			return fakecri.Fault{}
		}})
		time.Sleep(time.Second)
		_, id := r.start("u", nil)
		seen := make(chan struct{})
		go func() {
			defer close(seen)
			r.obs.RefreshUntilSeen(t.Context(), "u")
		}()
		time.Sleep(30 * time.Second)
		select {
		case <-seen:
			t.Fatal("it counts as seen though nothing can be listed")
		default:
		}
		refused.Store(0)
		began := time.Now()
		<-seen
		if o := r.obs.Current("u"); o.Container(id) == nil || time.Since(began) > 6*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), o)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		refused.Store(1 << 30)
		r.obs.RefreshUntilSeen(ended, "u") // returns
	})
}

func TestARuntimeThatComesLateAndGoesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		r.rt.SetDown(true)
		time.Sleep(time.Minute)
		if r.sink.runtime().Ready {
			t.Error("ready though it is away")
		}
		r.rt.SetDown(false)
		time.Sleep(3 * time.Second)
		if last, seen := r.sink.runtime(), r.sink.wholes(); !last.Ready || seen != 1 || !r.obs.Runtime().Events {
			t.Errorf("after it came: %+v, seen %d", last, seen)
		}
		r.rt.SetNetworkReady(false)
		time.Sleep(11 * time.Second)
		if r.sink.runtime().NetworkReady {
			t.Error("the network is ready")
		}
		r.rt.SetNetworkReady(true)
		r.rt.SetDown(true)
		time.Sleep(2 * time.Second)
		_, c := r.start("u", nil)
		_ = r.rt.Exit(c, 1, "")
		if r.sink.runtime().Ready {
			t.Error("ready though it went")
		}
		r.rt.SetDown(false)
		time.Sleep(3 * time.Second)
		if r.state("u") != podstate.StateExited || r.sink.wholes() != 1 {
			t.Errorf("what happened meanwhile: %+v", r.sink.get("u"))
		}
	})
}

func TestTheEndOfTheTerminationMessageIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		time.Sleep(2 * time.Second)
		_, c := r.start("u", map[string]string{cri.AnnotationTerminationMessagePath: "/dev/termination-log"})
		_ = r.rt.Exit(c, 1, "")
		synctest.Wait()
		if got := r.sink.get("u").Containers[0].Message; len(got) != 4096 || !strings.HasSuffix(got, "xbye") {
			t.Errorf("message of %d bytes", len(got))
		}
	})
}

func TestLogLinesAsTerminationMessage(t *testing.T) {
	line := "2026-11-20T12:00:00.0Z stderr "
	for _, tc := range []struct{ name, log, want string }{
		{"lines", line + "F one\n" + line + "F two\n", "one\ntwo\n"},
		{"a long line in parts", line + "P on\n" + line + "F e\n", "one\n"},
		{"cut at the beginning", "0Z stderr\n" + line + "F two\n", "two\n"},
		{"empty", "", ""},
	} {
		if got := lastLines([]byte(tc.log)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := lastLines([]byte(strings.Repeat(line+"F x\n", 200))); strings.Count(got, "\n") != maxLogLines {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	if got := lastLines([]byte(line + "F " + strings.Repeat("y", 9999) + "\n")); len(got) != maxLogBytes {
		t.Errorf("%d bytes", len(got))
	}
}
