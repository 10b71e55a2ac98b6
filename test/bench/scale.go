package main

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

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/fakeruntime"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/peers"
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
	stage
	fake *fakeruntime.Runtime
}

// runScale measures every agent with every choice of limits in turn, each time
// on a fresh stage, round after round.
func runScale(ctx context.Context, s settings) error {
	choices, err := limitsOf(s.limits)
	if err != nil {
		return err
	}
	if err := install.Check(); err != nil {
		return err
	}
	results := newResults()
	for round := range s.rounds {
		for _, l := range choices {
			for _, agent := range s.agents {
				name := agent + ", limits " + l.name
				fmt.Fprintf(os.Stderr, "round %d of %d: %s …\n", round+1, s.rounds, name)
				if err := measureScale(ctx, s, agent, l, results.column(name)); err != nil {
					return fmt.Errorf("measure %s: %w", name, err)
				}
			}
		}
	}
	text := scaleReport(s, results, time.Now())
	fmt.Print(text)
	if s.out == "" {
		if s.out, err = resultFile("scale", time.Now()); err != nil {
			return err
		}
	}
	return store(s, text, time.Now())
}

func measureScale(ctx context.Context, s settings, agent string, l limits, c *column) error {
	st := &scaleStage{}
	defer st.close()
	defer func() {
		if st.fake != nil {
			st.fake.Stop()
		}
	}()
	if err := st.open(ctx, s, agent, l); err != nil {
		return err
	}
	if err := st.node.Start(ctx); err != nil {
		return err
	}
	if err := waitForNode(ctx, &st.stage); err != nil {
		return err
	}
	if err := leaveAlone(ctx, settle); err != nil {
		return err
	}
	if err := scaleLife(ctx, s, st, agent, c); err != nil {
		return fmt.Errorf("%w%s", err, st.node.Logs(20))
	}
	return nil
}

func (st *scaleStage) open(ctx context.Context, s settings, agent string, l limits) error {
	var err error
	if st.inst, err = instance.New(); err != nil {
		return err
	}
	if err := st.inst.MakeCgroups(); err != nil {
		return err
	}
	st.fake, err = fakeruntime.Start(ctx, fakeruntime.Config{
		Instance: st.inst, Images: []string{images.TestApp, images.Pause}, Flags: strings.Fields(s.trouble), Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	if st.cluster, err = cluster.Start(ctx, cluster.Config{Instance: st.inst, Progress: os.Stderr}); err != nil {
		return err
	}
	overrides := map[string]any{"maxPods": s.scale + moreThanScale}
	if l.qps > 0 {
		overrides["kubeAPIQPS"], overrides["kubeAPIBurst"] = l.qps, l.burst
		overrides["eventRecordQPS"], overrides["eventBurst"] = l.qps, l.burst
	}
	cfg := node.Config{
		Instance: st.inst, Name: nodeName, RuntimeEndpoint: st.fake.Endpoint(), Cluster: st.cluster,
		Overrides: overrides, Progress: os.Stderr,
	}
	builder, err := peers.New(os.Stderr)
	if err != nil {
		return err
	}
	switch agent {
	case "polylet":
		cfg.Split = true
		cfg.Binary, err = builder.Polylet(ctx)
	case "kubelet":
		cfg.Kubelet = true
		cfg.Binary, err = builder.Binary(ctx, peers.Kubelet())
	default:
		err = fmt.Errorf("no agent is called %q", agent)
	}
	if err != nil {
		return err
	}
	st.node, err = node.New(cfg)
	return err
}

// scaleLife starts all pods at once, leaves them alone, ends some containers,
// and deletes the pods.
func scaleLife(ctx context.Context, s settings, st *scaleStage, agent string, c *column) error {
	client, err := scaleClient(st)
	if err != nil {
		return err
	}
	t, stopFollowing, err := follow(ctx, client)
	if err != nil {
		return err
	}
	defer stopFollowing()
	names, pods := burstNames(s.scale), client.CoreV1().Pods(metav1.NamespaceDefault)
	start := phase{rate: rowStartRate, cpu: rowStartCPU, profile: "start", do: func(name string) error {
		_, err := pods.Create(ctx, benchPod(name), metav1.CreateOptions{})
		return err
	}, until: func() bool { return int(t.ready.Load()) == s.scale }}
	if err := start.measure(ctx, s, st, t, names, c); err != nil {
		return fmt.Errorf("start %d pods: %w", s.scale, err)
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
		restarts = append(restarts, ms(took))
	}
	c.add(rowRestart, median(restarts))
	stop := phase{rate: rowStopRate, cpu: rowStopCPU, profile: "stop", do: func(name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	}, until: func() bool { return int(t.gone.Load()) == s.scale }}
	if err := stop.measure(ctx, s, st, t, names, c); err != nil {
		return fmt.Errorf("stop %d pods: %w", s.scale, err)
	}
	return nil
}

// phase does one thing to all pods at once.
type phase struct {
	rate, cpu, profile string
	do                 func(name string) error
	until              func() bool
}

func (p phase) measure(ctx context.Context, s settings, st *scaleStage, t *tally, names []string, c *column) error {
	before, err := usageOf(&st.stage)
	if err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- profileCPU(ctx, s, st, p.profile) }()
	began := time.Now()
	if _, err := each(names, p.do); err != nil {
		return err
	}
	if err := t.wait(ctx, p.until); err != nil {
		return err
	}
	c.add(p.rate, float64(len(names))/time.Since(began).Seconds())
	// What follows the last pod belongs to it.
	if err := leaveAlone(ctx, settle); err != nil {
		return err
	}
	after, err := usageOf(&st.stage)
	if err != nil {
		return err
	}
	c.add(p.cpu, (after.cpu-before.cpu)/float64(len(names)))
	return <-profiled
}

// measureIdle leaves the node alone and takes what it does meanwhile.
func measureIdle(ctx context.Context, s settings, st *scaleStage, agent string, c *column) error {
	if err := leaveAlone(ctx, s.settle); err != nil {
		return err
	}
	calls, err := st.calls(ctx)
	if err != nil {
		return err
	}
	before, err := usageOf(&st.stage)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := leaveAlone(ctx, s.idle); err != nil {
		return err
	}
	after, err := usageOf(&st.stage)
	if err != nil {
		return err
	}
	later, err := st.calls(ctx)
	if err != nil {
		return err
	}
	passed := time.Since(began)
	c.add(rowIdleCPU, (after.cpu-before.cpu)/1000/passed.Minutes())
	c.add(rowIdleCalls, float64(later-calls)/passed.Seconds())
	c.add(rowPSS, after.pss)
	return saveProfiles(ctx, s, &st.stage, fmt.Sprintf("%d-pods", s.scale))
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
	cfg := rest.CopyConfig(st.cluster.Rest)
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
	if !ok || t.seen[pod.UID] || !isReady(pod) {
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
