package podsync

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/internal/testkit/metricdoc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  containers:
  - {name: c, image: "registry.local/hello:1", imagePullPolicy: IfNotPresent, volumeMounts: [{name: scratch, mountPath: /scratch}]}
  volumes:
  - {name: scratch, emptyDir: {}}
`

// quiet is a notifier that never tells.
type quiet struct{}

func (quiet) Notify(ctx context.Context, _ string, _ func()) error {
	<-ctx.Done()
	return nil
}

// healths keeps the last word on each dependency.
type healths struct {
	mu   sync.Mutex
	said map[string]string
}

func (h *healths) Set(name string, ready bool, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ready {
		message = "ready"
	}
	h.said[name] = message
}

func (h *healths) get(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said[name]
}

// bare is the configuration of a node that looks after its pods and nothing else:
// there is no machine, and nothing is removed or rotated.
func bare(dir string) Config {
	cfg := Default()
	cfg.RootDir, cfg.Logs = filepath.Join(dir, "root"), LogsConfig{Dir: filepath.Join(dir, "logs", "pods")}
	cfg.Node.Name, cfg.Runtime.Endpoint = "n1", "unix:///run/test.sock"
	cfg.Admission.Deadline, cfg.Pods.DeadContainers = 0, 0
	cfg.Images, cfg.Network, cfg.Cgroups = ImagesConfig{}, NetworkConfig{}, CgroupsConfig{Root: "/"}
	cfg.Machine, cfg.PodsAPISocket, cfg.PluginsDir = nil, "", ""
	return cfg
}

// start runs a standalone podsync with one static pod on a fake runtime.
func start(t *testing.T, rt *fakecri.Runtime, reg prometheus.Registerer, h health.Reporter) *Service {
	t.Helper()
	return startWith(t, rt, reg, h, mount.NewFake())
}

// startWith is start with these mounts.
func startWith(t *testing.T, rt *fakecri.Runtime, reg prometheus.Registerer, h health.Reporter, mounter mount.Mounter) *Service {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifests", "hello.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := rt.Dial(t.Context(), cri.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := bare(dir)
	cfg.Node.Standalone, cfg.StaticPods.Path = true, filepath.Join(dir, "manifests")
	deps := faked(conn)
	deps.Metrics, deps.Health, deps.Mounter = reg, h, mounter
	s, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, func() {
		_ = conn.Close()
		rt.Close()
	})
	return s
}

// faked is what a podsync is given on a fake runtime: nothing of the machine.
func faked(conn *grpc.ClientConn) Deps {
	return Deps{
		Epoch: 1, Runtime: conn, Images: conn, Mounter: mount.NewFake(),
		Notifier: quiet{}, LogNotifier: quiet{}, HostsGuard: smallfiles.Off{}, HostIPs: func() []string { return []string{"192.0.2.1"} },
	}
}

// run runs a podsync until the test ends; then end takes away what it ran on.
func run(t testing.TB, s *Service, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		end()
	})
}

func (s *Service) phase() v1.PodPhase {
	pods := s.pods.List()
	if len(pods) != 1 {
		return ""
	}
	return pods[0].Status.Phase
}

func TestTheMetricsAreAsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := metricdoc.New()
		s := start(t, fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}}), metrics, health.Discard())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.phase() != v1.PodRunning {
			t.Fatalf("phase %q", s.phase())
		}
		golden.Lines(t, "testdata/metrics.golden", metrics.Text())
	})
}

func TestAStaticPodRunsWithoutAnApiserverAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		s := start(t, fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}}), reg, health.Discard())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.phase() != v1.PodRunning {
			t.Fatalf("phase %q", s.phase())
		}
		want := `
# HELP kubelet_running_pods Number of pods that have a running pod sandbox
# TYPE kubelet_running_pods gauge
kubelet_running_pods 1
# HELP kubelet_started_containers_total Cumulative number of containers started
# TYPE kubelet_started_containers_total counter
kubelet_started_containers_total{container_type="container"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubelet_running_pods", "kubelet_started_containers_total"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(reg, "kubelet_pod_start_duration_seconds"); err != nil || n != 1 {
			t.Errorf("%d start durations, %v", n, err)
		}
	})
}

func TestARuntimeThatIsNotThereIsNamedWithItsMendAndUsedWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}})
		rt.SetDown(true)
		h := &healths{said: map[string]string{}}
		s := start(t, rt, prometheus.NewRegistry(), h)
		time.Sleep(time.Minute)
		if said := h.get("runtime"); !strings.Contains(said, "unix:///run/test.sock") || !strings.Contains(said, "start it, or set containerRuntimeEndpoint") {
			t.Errorf("health says %q", said)
		}
		rt.SetDown(false)
		time.Sleep(3 * time.Second)
		if s.phase() != v1.PodRunning || h.get("runtime") != "ready" {
			t.Errorf("phase %q, health %q", s.phase(), h.get("runtime"))
		}
	})
}

func TestAPartThatCannotBeWiredIsSaid(t *testing.T) {
	if _, err := New(Config{}, Deps{}); err == nil || !strings.Contains(err.Error(), "Deps.Runtime") {
		t.Errorf("error %v", err)
	}
}
