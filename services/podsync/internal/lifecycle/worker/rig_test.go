package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/stopping"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// edges stand in for everything around the runtime.
type edges struct {
	mu       sync.Mutex
	statuses map[types.UID][]v1.PodStatus
	at       map[types.UID][]time.Time
	events   []string
	finished map[types.UID]bool
	volumes  map[types.UID]bool
	setup    func(pod *v1.Pod) error
	targets  map[types.UID][]podstate.Target
	inDoubt  []string
	// away: the apiserver does not answer.
	away bool
}

func (e *edges) Set(pod *v1.Pod, st v1.PodStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.statuses[pod.UID] = append(e.statuses[pod.UID], st)
	e.at[pod.UID] = append(e.at[pod.UID], time.Now())
}
func (e *edges) Forget(types.UID) {}

func (e *edges) Pod(_ *v1.Pod, typ, reason, message string) { e.event("", typ, reason, message) }
func (e *edges) Annotated(_ *v1.Pod, annotations map[string]string, typ, reason, message string) {
	e.event("", typ, reason, fmt.Sprint(message, " ", annotations))
}
func (e *edges) Container(_ *v1.Pod, c, typ, reason, message string) {
	e.event(c, typ, reason, message)
}

func (e *edges) Node(typ, reason, message string) { e.event("node", typ, reason, message) }

func (e *edges) doubted(pods []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inDoubt = append(e.inDoubt, fmt.Sprint(pods))
}

func (e *edges) event(c, typ, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, fmt.Sprintf("%s %s %s %s", c, typ, reason, message))
}

func (e *edges) Setup(_ context.Context, pod *v1.Pod, _ ...string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.setup != nil {
		if err := e.setup(pod); err != nil {
			return err
		}
	}
	e.volumes[pod.UID] = true
	return nil
}

func (e *edges) Teardown(_ context.Context, uid types.UID, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.volumes, uid)
	return nil
}
func (e *edges) RemovePodDir(types.UID) error            { return nil }
func (e *edges) Remove(context.Context, types.UID) error { return nil }
func (e *edges) Raise(_ context.Context, pod *v1.Pod) error {
	e.event("", "cgroup", "raise", pod.Spec.Containers[0].Resources.Limits.Memory().String())
	return nil
}
func (e *edges) Fit(_ context.Context, pod *v1.Pod) error {
	e.event("", "cgroup", "fit", pod.Spec.Containers[0].Resources.Limits.Memory().String())
	return nil
}
func (e *edges) Finish(_ context.Context, p *v1.Pod) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return errors.New("the apiserver is away")
	}
	e.finished[p.UID] = true
	return nil
}

// end asks for a pod's end as one that has to make room.
func (r *rig) end(uid types.UID, stop podstate.Stop) {
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	r.reg.pods[uid].stopLocked(stop, false)
}

// isFinished says whether the pod's object was deleted.
func (e *edges) isFinished(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finished[uid]
}

// said returns the events so far.
func (e *edges) said() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

type probes struct{ *edges }

func (p probes) Set(pod *v1.Pod, targets []podstate.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets[pod.UID] = targets
}
func (p probes) Results(types.UID) map[podstate.ProbeKey]podstate.ProbeResult { return nil }
func (p probes) Remove(uid types.UID)                                         { p.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, nil) }

type builder struct{}

func (builder) Resized(_ *v1.Pod, _ string, k resources.Kernel) *runtimeapi.LinuxContainerResources {
	return criconfig.Kernel(k)
}

func (builder) SandboxResources(*v1.Pod) (overhead, containers *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (builder) Pull(context.Context, *v1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	return &runtimeapi.PodSandboxConfig{}, nil
}

func (builder) Sandbox(_ context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error) {
	annotations := map[string]string{cri.AnnotationAllocated: must(resize.Of(pod).Encode())}
	if src := pod.Annotations[podutil.AnnotationSource]; src != "" {
		annotations[podutil.AnnotationSource] = src
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		Labels:      map[string]string{cri.LabelPodName: pod.Name, cri.LabelPodNamespace: pod.Namespace, cri.LabelPodUID: string(pod.UID)},
		Annotations: annotations,
	}, "", nil
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

func (builder) Container(_ context.Context, r criconfig.Request) (*runtimeapi.ContainerConfig, error) {
	c, _ := podutil.Container(r.Pod, r.Container)
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: r.Container, Attempt: uint32(r.RestartCount)},
		Image:    &runtimeapi.ImageSpec{Image: r.ImageRef, UserSpecifiedImage: c.Image},
		Labels: map[string]string{
			cri.LabelPodName: r.Pod.Name, cri.LabelPodNamespace: r.Pod.Namespace, cri.LabelPodUID: string(r.Pod.UID), cri.LabelContainerName: r.Container,
		},
		Annotations: map[string]string{
			cri.AnnotationHash: podutil.Hash(c), cri.AnnotationRestartCount: strconv.Itoa(r.RestartCount), cri.AnnotationBackoff: r.Backoff.String(),
			cri.AnnotationResources:  must(encode(resources.Effective(r.Pod, c))),
			cri.AnnotationBackoffKey: podutil.BackoffKey(c), cri.AnnotationRound: strconv.Itoa(r.Round),
		},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: criconfig.Kernel(resources.ForContainer(resources.Effective(r.Pod, c), quotas))},
	}, nil
}

var quotas = resources.Quotas{On: true}

func encode(r v1.ResourceRequirements) (string, error) {
	raw, err := json.Marshal(r)
	return string(raw), err
}

// rig is a registry on a fake runtime.
type rig struct {
	// put stands before each decision to end a pod that is kept.
	put  func() error
	hang bool // the disk that keeps stops does not answer
	// keep stands before each allocation that is kept.
	keep  func() error
	store *allocation.Store
	ends  *stopping.Keeper
	// spoiled: what a previous run kept cannot be read.
	spoiled bool
	// capacity is what all pods together may ask for of the cpu; no bound when zero.
	capacity int64
	// hostIPs are the node's addresses.
	hostIPs atomic.Pointer[[]string]
	// mirrors is told of static pods; nil for nobody.
	mirrors Mirrors
	// short is what the node is short of; nil for nothing ever.
	short func() map[v1.NodeConditionType]time.Time
	// unmet names the features that an update of a pod needs and the node lacks.
	unmet func(old, now *v1.Pod) ([]string, error)
	t     *testing.T
	rt    *fakecri.Runtime
	e     *edges
	reg   *Registry
	pods  *podcache.Pods
	obs   *observe.Observer
	stop  func()
	path  string
}

// resize lets resizes through while the cpu is not asked for twice.
func (r *rig) resize(q ResizeQuestion) *podstate.ResizePending {
	sum := func(pod *v1.Pod) int64 {
		return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	want := sum(q.Pod)
	for _, other := range q.Active {
		want += sum(other)
	}
	if r.capacity > 0 && want > r.capacity {
		return &podstate.ResizePending{Reason: v1.PodReasonDeferred, Cause: "OutOfcpu", Message: fmt.Sprintf("%d of %d", want, r.capacity)}
	}
	return nil
}

func newRig(t *testing.T, cfg fakecri.Config) *rig {
	r := unstarted(t, cfg)
	r.start()
	return r
}

// unstarted is a rig of which something is set before it starts.
func unstarted(t *testing.T, cfg fakecri.Config) *rig {
	r := &rig{t: t, rt: fakecri.New(cfg), e: &edges{
		statuses: map[types.UID][]v1.PodStatus{}, at: map[types.UID][]time.Time{}, finished: map[types.UID]bool{},
		volumes: map[types.UID]bool{}, targets: map[types.UID][]podstate.Target{},
	}}
	r.hostIPs.Store(&[]string{"192.0.2.1"})
	r.path = filepath.Join(t.TempDir(), "allocations.json") // goes after what writes into it has stopped
	t.Cleanup(func() {
		r.stop()
		r.rt.Close()
		synctest.Wait() // What is being written goes on beyond its context.
	})
	return r
}

// keeper keeps the decisions to end pods.
type keeper struct{ r *rig }

func (k keeper) Of(uid types.UID) *podstate.Stop       { return k.r.ends.Of(uid) }
func (k keeper) Last(uid types.UID) *v1.PodStatus      { return k.r.ends.Last(uid) }
func (k keeper) Withdraw(uid types.UID)                { k.r.ends.Withdraw(uid) }
func (k keeper) Forget(uid types.UID)                  { k.r.ends.Forget(uid) }
func (k keeper) Prune(exists func(uid types.UID) bool) { k.r.ends.Prune(exists) }
func (k keeper) Put(ctx context.Context, uid types.UID, stop podstate.Stop) error {
	return k.try(ctx, func() error { return k.r.ends.Put(ctx, uid, stop) })
}

func (k keeper) PutLast(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	return k.try(ctx, func() error { return k.r.ends.PutLast(ctx, uid, status) })
}

// try writes unless the disk has a fault.
func (k keeper) try(ctx context.Context, write func() error) error {
	if k.r.put != nil {
		if err := k.r.put(); err != nil {
			return err
		}
	}
	if k.r.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return write()
}

// allocations keeps what pods are allocated.
type allocations struct{ r *rig }

func (a allocations) InEffect(uid types.UID, generation int64) { a.r.store.InEffect(uid, generation) }

func (a allocations) Put(ctx context.Context, uid types.UID, e allocation.Entry) error {
	if a.r.keep != nil {
		if err := a.r.keep(); err != nil {
			return err
		}
	}
	return a.r.store.Put(ctx, uid, e)
}

// sink lets the observer be made before the registry.
type sink struct{ *Registry }

func (r *rig) start() {
	conn, err := r.rt.Dial(r.t.Context(), cri.DialOptions()...)
	if err != nil {
		r.t.Fatal(err)
	}
	client := cri.New(cri.Config{}, conn, conn, nil)
	s := &sink{}
	r.pods = podcache.NewPods(1)
	r.store = allocation.New(r.path, nil)
	r.ends = stopping.New(stopping.Deps{File: filepath.Join(filepath.Dir(r.path), "stops.json")})
	r.ends.Load(logr.Discard())
	if err := r.store.Load(); (err != nil) != r.spoiled {
		r.t.Fatalf("what was kept is spoiled: %v, it says %v", r.spoiled, err)
	}
	r.obs = observe.New(observe.Config{}, observe.Deps{Client: client, Sink: s})
	exec := execute.New(execute.Config{}, execute.Deps{
		Runtime: client, Observer: r.obs, Images: image.New(image.Config{}, image.Deps{Client: client, Events: r.e}),
		Volumes: r.e, Cgroups: r.e, Builder: builder{}, Hooks: hook.New(hook.Deps{Exec: client}), Finisher: r.e, Allocations: allocations{r}, Ends: keeper{r},
		Starts: limiter.New(limiter.Config{}), Stops: limiter.New(limiter.Config{}), Events: r.e, HostIPs: func() []string { return []string{"192.0.2.1"} },
	})
	r.reg = New(Config{Sources: []string{"api"}}, Deps{
		Executor: exec, Status: r.e, Probes: probes{r.e}, Events: r.e, Pods: r.pods, Mirrors: r.mirrors,
		Admit:  func(Question) Answer { return Answer{Admission: podstate.Admission{Decision: podstate.Admitted}} },
		Short:  r.short,
		Resize: r.resize, Allocations: r.store, Ends: keeper{r},
		InDoubt: r.e.doubted,
		Unmet: func(old, now *v1.Pod) ([]string, error) {
			if r.unmet == nil {
				return nil, nil
			}
			return r.unmet(old, now)
		},
		Node: func() plan.Node {
			o := r.obs.Runtime()
			return plan.Node{Quotas: quotas, IPs: *r.hostIPs.Load(), RuntimeName: o.Name, NetworkReady: o.NetworkReady}
		},
	})
	s.Registry = r.reg
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.obs.Run(ctx) })
	wg.Go(func() { _ = r.reg.Run(ctx) })
	wg.Go(func() { _ = r.ends.Run(ctx) })
	r.stop = func() { cancel(); wg.Wait(); _ = conn.Close() }
}

func newPod(name string, containers ...v1.Container) *v1.Pod {
	grace := int64(30)
	for i := range containers {
		if containers[i].Name == "" {
			containers[i].Name = "c" + strconv.Itoa(i)
		}
		if containers[i].ImagePullPolicy == "" {
			containers[i].ImagePullPolicy = v1.PullIfNotPresent
		}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: containers, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace},
	}
}

func (r *rig) status(uid types.UID) v1.PodStatus {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if n := len(r.e.statuses[uid]); n > 0 {
		return r.e.statuses[uid][n-1]
	}
	return v1.PodStatus{}
}

func isReady(st v1.PodStatus) bool {
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// until lets time pass until ok, and returns how much did.
func (r *rig) until(what string, limit time.Duration, ok func() bool) time.Duration {
	r.t.Helper()
	began := time.Now()
	for {
		synctest.Wait()
		if ok() {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			r.t.Fatalf("%s: not after %v; statuses %+v\nevents %q\ncontainers %+v", what, limit, r.e.statuses, r.e.said(), r.rt.Snapshot().Containers)
		}
		time.Sleep(time.Millisecond)
	}
}
