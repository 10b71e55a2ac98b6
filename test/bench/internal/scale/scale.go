// Package scale measures hundreds of pods on a runtime without processes, so that
// the figures are the agent's. It must never call them those of a node with real
// containers.
package scale

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/polylet/polylet/test/bench/internal/profile"
	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/fakeruntime"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/stack"
)

const (
	// scaleRestarts is how many containers are ended, one after the other.
	scaleRestarts = 20
	// scaleWithin bounds the wait for all pods to start or to go: a kubelet with
	// its default limits needs a second for 15 pods.
	scaleWithin = 10 * time.Minute
	// moreThanScale is by how much maxPods is above the number of pods.
	moreThanScale = 10
)

// limits are what an agent's client of the apiserver may do.
type limits struct {
	name       string
	qps, burst int // of the kubeAPI* and event* fields; zero leaves the defaults
}

func limitsOf(names string) ([]limits, error) {
	all := []limits{{name: "raised", qps: 1000, burst: 2000}, {name: "default"}}
	var chosen []limits
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(all, func(l limits) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-limits: %q is neither raised nor default", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// scaleStage is a stage on the fake runtime.
type scaleStage struct {
	stage.Stage
	fake *fakeruntime.Runtime
}

// run measures every agent with every choice of limits in turn, each time
// on a fresh stage, round after round.
func run(ctx context.Context, s Settings) error {
	choices, err := limitsOf(s.Limits)
	if err != nil {
		return err
	}
	if err := install.Check(); err != nil {
		return err
	}
	results := report.New()
	for round := range s.Rounds {
		for _, l := range choices {
			for _, agent := range s.Agents {
				name := agent + ", limits " + l.name
				fmt.Fprintf(os.Stderr, "round %d of %d: %s …\n", round+1, s.Rounds, name)
				if err := measureScale(ctx, s, agent, l, results.Column(name)); err != nil {
					return fmt.Errorf("measure %s: %w", name, err)
				}
			}
		}
	}
	text := table(s, results, time.Now())
	fmt.Print(text)
	return report.Store(s.Out, "scale", text, time.Now())
}

func measureScale(ctx context.Context, s Settings, agent string, l limits, c *report.Column) error {
	st := &scaleStage{}
	defer st.Close()
	defer func() {
		if st.fake != nil {
			st.fake.Stop()
		}
	}()
	if err := st.open(ctx, s, agent, l); err != nil {
		return err
	}
	if err := st.Node.Start(ctx); err != nil {
		return err
	}
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, stage.Settle); err != nil {
		return err
	}
	if err := scaleLife(ctx, s, st, agent, c); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(20))
	}
	return nil
}

func (st *scaleStage) open(ctx context.Context, s Settings, agent string, l limits) error {
	i, err := instance.New()
	if err != nil {
		return err
	}
	st.Stack = stack.New(i, os.Stderr)
	if err := i.MakeCgroups(); err != nil {
		return err
	}
	st.fake, err = fakeruntime.Start(ctx, fakeruntime.Config{
		Instance: i, Images: []string{images.TestApp, images.Pause}, Flags: strings.Fields(s.Trouble), Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	if err := st.StartCluster(ctx, cluster.Config{}); err != nil {
		return err
	}
	overrides := map[string]any{"maxPods": s.Pods + moreThanScale}
	if l.qps > 0 {
		overrides["kubeAPIQPS"], overrides["kubeAPIBurst"] = l.qps, l.burst
		overrides["eventRecordQPS"], overrides["eventBurst"] = l.qps, l.burst
	}
	return st.MakeNode(ctx, agent, node.Config{
		Name: stage.NodeName, RuntimeEndpoint: st.fake.Endpoint(), Split: true, Overrides: overrides,
	})
}

// scaleLife starts all pods at once, leaves them alone, ends some containers,
// and deletes the pods.
func scaleLife(ctx context.Context, s Settings, st *scaleStage, agent string, c *report.Column) error {
	client, err := scaleClient(st)
	if err != nil {
		return err
	}
	t, stopFollowing, err := follow(ctx, client)
	if err != nil {
		return err
	}
	defer stopFollowing()
	names, pods := stage.BurstNames(s.Pods), client.CoreV1().Pods(metav1.NamespaceDefault)
	start := phase{rate: rowStartRate, cpu: rowStartCPU, profile: "start", do: func(name string) error {
		_, err := pods.Create(ctx, stage.Pod(name), metav1.CreateOptions{})
		return err
	}, until: func() bool { return int(t.ready.Load()) == s.Pods }}
	if err := start.measure(ctx, s, st, t, names, c); err != nil {
		return fmt.Errorf("start %d pods: %w", s.Pods, err)
	}
	if err := measureIdle(ctx, s, st, agent, c); err != nil {
		return err
	}
	var restarts []float64
	for _, name := range names[:min(scaleRestarts, len(names))] {
		took, err := st.fake.Exit(ctx, name)
		if err != nil {
			return fmt.Errorf("end a container of pod %s: %w", name, err)
		}
		restarts = append(restarts, report.Milliseconds(took))
	}
	c.Add(rowRestart, median(restarts))
	stop := phase{rate: rowStopRate, cpu: rowStopCPU, profile: "stop", do: func(name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	}, until: func() bool { return int(t.gone.Load()) == s.Pods }}
	if err := stop.measure(ctx, s, st, t, names, c); err != nil {
		return fmt.Errorf("stop %d pods: %w", s.Pods, err)
	}
	return nil
}

// phase does one thing to all pods at once.
type phase struct {
	rate, cpu, profile string
	do                 func(name string) error
	until              func() bool
}

func (p phase) measure(ctx context.Context, s Settings, st *scaleStage, t *tally, names []string, c *report.Column) error {
	before, err := usage.Of(st.Node)
	if err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- profileCPU(ctx, s, st, p.profile) }()
	began := time.Now()
	if _, err := stage.Each(names, p.do); err != nil {
		return err
	}
	if err := t.wait(ctx, p.until); err != nil {
		return err
	}
	c.Add(p.rate, float64(len(names))/time.Since(began).Seconds())
	// What follows the last pod belongs to it.
	if err := stage.Sleep(ctx, stage.Settle); err != nil {
		return err
	}
	after, err := usage.Of(st.Node)
	if err != nil {
		return err
	}
	c.Add(p.cpu, (after.CPU-before.CPU)/float64(len(names)))
	return <-profiled
}

// measureIdle leaves the node alone and takes what it does meanwhile.
func measureIdle(ctx context.Context, s Settings, st *scaleStage, agent string, c *report.Column) error {
	if err := stage.Sleep(ctx, s.Settle); err != nil {
		return err
	}
	calls, err := st.calls(ctx)
	if err != nil {
		return err
	}
	before, err := usage.Of(st.Node)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := stage.Sleep(ctx, s.Idle); err != nil {
		return err
	}
	after, err := usage.Of(st.Node)
	if err != nil {
		return err
	}
	later, err := st.calls(ctx)
	if err != nil {
		return err
	}
	passed := time.Since(began)
	c.Add(rowIdleCPU, (after.CPU-before.CPU)/1000/passed.Minutes())
	c.Add(rowIdleCalls, float64(later-calls)/passed.Seconds())
	c.Add(rowPSS, after.PSS)
	return profile.Heaps(ctx, s.Profiles, st.Node, fmt.Sprintf("%d-pods", s.Pods))
}

// calls is how many calls the agent has made of the runtime.
func (st *scaleStage) calls(ctx context.Context) (int, error) {
	byMethod, err := st.fake.Calls(ctx)
	n := 0
	for _, count := range byMethod {
		n += count
	}
	return n, err
}

// scaleClient is a client of the apiserver that is not the narrow place.
func scaleClient(st *scaleStage) (kubernetes.Interface, error) {
	cfg := rest.CopyConfig(st.Cluster.Rest)
	cfg.QPS, cfg.Burst = 1000, 2000
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(cfg)
}

// tally counts the pods of the default namespace that have been Ready, and those
// that are gone.
type tally struct {
	ready, gone atomic.Int64
	changed     chan struct{}

	seen map[types.UID]bool // that were Ready; the informer's goroutine alone uses it
}

// follow counts until stop is called. An apiserver that drops a slow watch, as
// it does in a burst, is asked again.
func follow(ctx context.Context, client kubernetes.Interface) (t *tally, stop func(), err error) {
	t = &tally{changed: make(chan struct{}, 1), seen: map[types.UID]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault, fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(lw, client), ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    t.see,
			UpdateFunc: func(_, pod any) { t.see(pod) },
			DeleteFunc: func(any) { t.gone.Add(1); t.tell() },
		},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, nil, fmt.Errorf("watch pods: %w", ctx.Err())
	}
	return t, stop, nil
}

func (t *tally) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || t.seen[pod.UID] || !stage.IsReady(pod) {
		return
	}
	t.seen[pod.UID] = true
	t.ready.Add(1)
	t.tell()
}

func (t *tally) tell() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *tally) wait(ctx context.Context, until func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, scaleWithin)
	defer cancel()
	for !until() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods were Ready and %d are gone: %w", t.ready.Load(), t.gone.Load(), ctx.Err())
		case <-t.changed:
		}
	}
	return nil
}
