package sim

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// life is one process of podsync, from its start to its crash. Once it is dead,
// nothing that its goroutines still do reaches the runtime, the apiserver or
// the mounts.
type life struct {
	w      *world
	cancel context.CancelFunc
	dead   atomic.Bool
	once   sync.Once
	// stopped is when it was asked to end, in Unix nanoseconds.
	stopped atomic.Int64
	late    *time.Timer
	// server answers its RPCs; nil before it can.
	server podsyncv1.PodSyncServiceServer
}

// stop asks it to end, as a signal does.
func (l *life) stop() {
	if l.stopped.CompareAndSwap(0, time.Now().UnixNano()) {
		l.late = time.AfterFunc(longestStop, func() { l.w.judge.fail("podsync does not end when it is asked to:\n%s", bubbles()) })
	}
	l.cancel()
}

func (l *life) stoppedAt() (time.Time, bool) {
	at := l.stopped.Load()
	return time.Unix(0, at), at != 0
}

var errDead = errors.New("this podsync has crashed")

func (l *life) crash(at string) {
	l.once.Do(func() {
		l.w.tell("CRASH", "at", at)
		l.dead.Store(true)
		l.w.judge.interrupted()
		l.stop()
	})
}

// fate decides whether podsync dies at a call, and if so whether the call has
// its effect first. It follows from the seed, what the call is about and how
// many such calls came before.
func (w *world) fate(subject string) (dies, after bool) {
	if !w.noisy.Load() {
		return false, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls[subject]
	w.calls[subject]++
	if w.crashed >= w.scenario.crashes {
		return false, false
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(subject))
	rng := rand.New(rand.NewPCG(uint64(w.seed), h.Sum64()+uint64(n)))
	dies, after = rng.Float64() < w.scenario.crashRate, rng.IntN(2) == 0
	if dies {
		w.crashed++
	}
	return dies, after
}

// through lets one call pass, or dies at it.
func (l *life) through(subject string, do func() error) error {
	if l.dead.Load() {
		return errDead
	}
	subject = strings.ReplaceAll(subject, l.w.dir, "")
	dies, after := l.w.fate(subject)
	if dies && !after {
		l.crash("before " + subject)
		return errDead
	}
	l.w.trace.note("CALL %s", subject)
	err := do()
	l.w.trace.note("END %s: %v", subject, err)
	if dies {
		l.crash("after " + subject)
	}
	if l.dead.Load() {
		return errDead
	}
	return err
}

// wire is the way to the runtime.
type wire struct {
	*life
	grpc.ClientConnInterface
}

func (c wire) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	l, name := c.life, method[strings.LastIndex(method, "/")+1:]
	began := now()
	err := l.through(name+" "+fakecri.Subject(req), func() error {
		l.w.judge.calls(req)
		do := func() error { return c.ClientConnInterface.Invoke(ctx, method, req, reply, opts...) }
		if s := l.w.sabotage; s != nil && s.cri != nil {
			return s.cri(l.w, name, req, reply, do)
		}
		return do()
	})
	switch q := req.(type) {
	case *runtimeapi.StopContainerRequest:
		l.w.judge.stopOver(q, began, errors.Is(ctx.Err(), context.Canceled) && !l.dead.Load())
	case *runtimeapi.ExecSyncRequest:
		if q.GetCmd()[0] != postStart {
			break
		}
		l.w.judge.hookOver(q.GetContainerId())
		if err != nil || reply.(*runtimeapi.ExecSyncResponse).GetExitCode() != 0 {
			l.w.judge.hookFailed(q.GetContainerId())
		}
	case *runtimeapi.StartContainerRequest:
		if err != nil { // it may run, and podsync does not know it
			l.w.judge.hookOver(q.GetContainerId())
		}
	}
	if errors.Is(err, errDead) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

// NewStream lets streams pass: the answers of commands come as one, of a single
// message, and are a call like others here.
func (c wire) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == runtimeapi.RuntimeService_ExecSync_FullMethodName {
		return &command{wire: c, ctx: ctx, opts: opts}, nil
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// command is ExecSync as a stream: the call is made when its header is asked for.
type command struct {
	grpc.ClientStream // nil: no more than what is here is used of it
	wire              wire
	ctx               context.Context //nolint:containedctx // a stream has one
	opts              []grpc.CallOption
	req               any
	reply             runtimeapi.ExecSyncResponse
	err               error
}

func (c *command) SendMsg(m any) error { c.req = m; return nil }

func (c *command) CloseSend() error { return nil }

func (c *command) Header() (metadata.MD, error) {
	c.err = c.wire.Invoke(c.ctx, runtimeapi.RuntimeService_ExecSync_FullMethodName, c.req, &c.reply, c.opts...)
	return nil, nil //nolint:nilerr // as gRPC's: RecvMsg says what became of the call
}

func (c *command) RecvMsg(m any) error {
	if c.err == nil {
		proto.Merge(m.(proto.Message), &c.reply)
	}
	return c.err
}

// overGRPC is how many seeds share one that has gRPC's transport between podsync
// and the runtime, with its pauses after a connection was lost; the others call
// the runtime directly, at a tenth of the cost.
const overGRPC = 16

// dial connects one life of podsync with the runtime.
func (l *life) dial(ctx context.Context) (conn grpc.ClientConnInterface, hangUp func()) {
	if l.w.seed%overGRPC != 0 {
		return wire{l, l.w.rt.Direct()}, func() {}
	}
	dialled, err := l.w.rt.Dial(ctx, cri.DialOptions()...)
	l.w.must(err)
	return wire{l, dialled}, func() { _ = dialled.Close() }
}

// transport is the way to the apiserver.
type transport struct {
	*life
	next http.RoundTripper
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var resp *http.Response
	err := t.through(req.Method+" "+req.URL.Path, func() (err error) {
		if s := t.w.sabotage; s != nil && s.api != nil {
			resp, err = s.api(t.w, req, t.next)
			t.w.judge.refused(req, resp)
			return err
		}
		resp, err = t.next.RoundTrip(req)
		t.w.judge.refused(req, resp)
		return err
	})
	if errors.Is(err, errDead) && resp != nil {
		_ = resp.Body.Close()
		resp = nil
	}
	return resp, err
}

// longestStop is how long podsync may take to end when it is asked to; the
// calls that it has under way end with its context.
const longestStop = time.Second

// keepAlive starts podsync, and again after each crash.
func (w *world) keepAlive() {
	rng := rand.New(rand.NewPCG(uint64(w.seed), 1000))
	for n := 0; !w.closing.Load(); n++ {
		l := &life{w: w}
		w.tell("START", "life", n)
		w.judge.backAgain()
		err := w.live(l, n)
		if w.closing.Load() {
			return
		}
		if !l.dead.Load() {
			w.judge.fail("podsync ended by itself: %v", err)
			return
		}
		pause := max(time.Duration(rng.IntN(5000))*time.Millisecond, w.takePause())
		w.tell("DOWN", "for", pause.String())
		time.Sleep(pause)
	}
}

// config is that of a node without cgroups and a machine, which removes no images and
// rotates no logs.
func (w *world) config() podsync.Config {
	cfg := podsync.Default()
	cfg.RootDir, cfg.Logs = filepath.Join(w.dir, "root"), podsync.LogsConfig{Dir: filepath.Join(w.dir, "logs", "pods")}
	cfg.Node.Name, cfg.Node.ExternalCloud = nodeName, true
	cfg.Runtime = podsync.RuntimeConfig{Endpoint: "fake", RequestTimeout: 15 * time.Second}
	cfg.StaticPods.Path = filepath.Join(w.dir, "manifests")
	cfg.Admission.Deadline, cfg.Pods.DeadContainers, cfg.Resize.StaticCPU = 0, 0, true
	cfg.Images = podsync.ImagesConfig{MaxParallelPulls: 2, Verify: true, VerifyPolicy: w.scenario.verification()}
	cfg.Network, cfg.Cgroups = podsync.NetworkConfig{}, podsync.CgroupsConfig{Root: "/"}
	cfg.Machine, cfg.PodsAPISocket, cfg.PluginsDir = nil, "", ""
	return cfg
}

// live runs podsync until it crashes or is stopped.
func (w *world) live(l *life, n int) error {
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), w.log))
	defer cancel()
	l.cancel = cancel
	w.mu.Lock()
	w.life = l
	w.mu.Unlock()
	if w.closing.Load() {
		return nil
	}
	conn, hangUp := l.dial(ctx)
	defer hangUp()
	config := w.api.RESTConfig()
	config.UserAgent = "podsync"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{l, next} })
	config.Wrap(kubeclient.WithAnswerTimeout)
	client, err := kubernetes.NewForConfig(config)
	w.must(err)
	deps := podsync.Deps{
		Epoch: uint64(n + 1), Runtime: conn, Images: conn, Client: client, Mounter: mounter{l, w.mounts},
		Notifier: w.notifier, LogNotifier: w.notifier, HostsGuard: smallfiles.Off{},
	}
	if w.scenario.csi != nil {
		deps.Plugins, deps.DialCSI = l.plugins, l.dialDisk
	}
	service, err := podsync.New(w.config(), deps)
	w.must(err)
	var probes sync.WaitGroup
	service.Register(registrar(func(impl any) {
		w.mu.Lock()
		l.server = impl.(podsyncv1.PodSyncServiceServer)
		w.mu.Unlock()
		probes.Go(func() { w.prober.follow(ctx, impl) })
		if w.scenario.csi != nil {
			probes.Go(func() { w.attacher.follow(ctx, impl.(podsyncv1.PodSyncServiceServer)) })
		}
	}))
	err = service.Run(ctx)
	if stopped, ok := l.stoppedAt(); ok && !l.late.Stop() {
		w.judge.fail("podsync took %v to end", time.Since(stopped))
	}
	cancel()
	probes.Wait()
	return err
}
