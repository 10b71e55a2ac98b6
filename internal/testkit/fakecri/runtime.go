package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the fake. Its methods may be called from any goroutine, but not from
// inside OnTransition.
type Runtime struct {
	cfg     Config
	scripts map[string]Script // by normalized image name
	closed  chan struct{}     // closed by Close: ends everything that waits

	serving serving

	mu             sync.Mutex
	isClosed       bool
	down           bool
	runtimeReady   bool
	networkReady   bool
	badTeardowns   int // how many more CNI DELs fail
	podCIDR        string
	seq            int
	nextIP         int
	idCounts       map[string]int
	sandboxes      map[string]*sandbox
	sandboxNames   map[string]string // reserved name -> identifier
	containers     map[string]*container
	containerNames map[string]string
	images         map[string]*image
	registry       map[string]RemoteImage // by normalized name; nil: everything
	events         eventQueue
	pulls          []*runtimeapi.PullImageRequest
	history        []Transition
	calls          map[string]int
	callLog        []Call
	timers         map[*time.Timer]struct{} // pending own exits, signals, late events
}

// New returns a runtime that is up. Inside a synctest bubble, call it inside the bubble.
// Close ends it.
func New(cfg Config) *Runtime {
	cfg.applyDefaults()
	r := &Runtime{
		cfg:            cfg,
		scripts:        map[string]Script{},
		closed:         make(chan struct{}),
		runtimeReady:   true,
		networkReady:   true,
		idCounts:       map[string]int{},
		sandboxes:      map[string]*sandbox{},
		sandboxNames:   map[string]string{},
		containers:     map[string]*container{},
		containerNames: map[string]string{},
		images:         map[string]*image{},
		calls:          map[string]int{},
		timers:         map[*time.Timer]struct{}{},
	}
	for name, s := range cfg.Scripts {
		r.scripts[normalize(name)] = s
	}
	if cfg.Registry != nil {
		r.registry = map[string]RemoteImage{}
		for name, img := range cfg.Registry {
			r.registry[normalize(name)] = img
		}
	}
	r.mu.Lock()
	for _, name := range cfg.Images {
		remote, _ := r.remoteLocked(normalize(name))
		r.addImageLocked(normalize(name), remote, "New")
	}
	r.mu.Unlock()
	r.serving.start(r)
	return r
}

// Close cuts every connection, stops every process and timer, and returns when the
// goroutines have ended. The state can still be looked at.
func (r *Runtime) Close() {
	r.mu.Lock()
	if r.isClosed {
		r.mu.Unlock()
		return
	}
	r.isClosed = true
	close(r.closed)
	for t := range r.timers {
		t.Stop()
	}
	clear(r.timers)
	for _, c := range r.containers {
		c.log.close()
	}
	r.mu.Unlock()
	r.serving.stop()
}

// Runtime returns the runtime service itself: direct calls, without gRPC and faults.
func (r *Runtime) Runtime() runtimeapi.RuntimeServiceServer { return &runtimeService{r: r} }

// Images returns the image service itself: direct calls, without gRPC and faults.
func (r *Runtime) Images() runtimeapi.ImageServiceServer { return &imageService{r: r} }

// SetRuntimeReady sets the condition RuntimeReady.
func (r *Runtime) SetRuntimeReady(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runtimeReady = ready
}

// SetNetworkReady sets the condition NetworkReady. While it is false, sandboxes that
// need a network fail to start, and no network can be taken down.
func (r *Runtime) SetNetworkReady(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.networkReady = ready
}

// SetImage changes what the registry holds under a name. With a nil Config.Registry the
// name is added to an otherwise unlimited registry.
func (r *Runtime) SetImage(name string, img RemoteImage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registry == nil {
		r.registry = map[string]RemoteImage{"*": {}}
	}
	r.registry[normalize(name)] = img
}

// Exit ends the process of a running container now. An empty reason becomes Completed
// or Error.
func (r *Runtime) Exit(containerID string, code int32, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[containerID]
	if c == nil || c.state != Running {
		return fmt.Errorf("end container %q: it is not running", containerID)
	}
	c.exitLocked(code, reason, "Exit", "")
	return nil
}

// KillSandbox lets the sandbox's own process die and all its containers with it, as in a
// process namespace that they share: the sandbox becomes NotReady, its containers end
// with 137. Its network stays up.
func (r *Runtime) KillSandbox(sandboxID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[sandboxID]
	if s == nil {
		return fmt.Errorf("kill sandbox %q: there is none", sandboxID)
	}
	s.stopLocked("KillSandbox")
	return nil
}

// KillPause lets the sandbox's own process die, and nothing else: the sandbox becomes
// NotReady, while its containers and its network go on.
func (r *Runtime) KillPause(sandboxID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[sandboxID]
	if s == nil || s.state != Ready {
		return fmt.Errorf("kill the process of sandbox %q: none runs", sandboxID)
	}
	s.endLocked("KillPause")
	return nil
}

// LoseImage takes an image away behind everybody's back, as an administrator does, and
// says whether it was there. Containers made from it run on.
func (r *Runtime) LoseImage(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removeImageLocked(name, "LoseImage")
}

// Wipe is a restart of the machine after which the runtime has forgotten every sandbox
// and container, as when its state lay on a disk that is gone. Nobody gets events of it.
func (r *Runtime) Wipe() {
	r.Reboot()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true // nothing is told
	for _, c := range r.containerList() {
		c.remove("Wipe")
	}
	for _, s := range r.sandboxList() {
		s.networkIsDownLocked("Wipe")
		delete(r.sandboxes, s.id)
		delete(r.sandboxNames, s.name)
		s.to(Removed, "Wipe")
	}
	r.down = false
}

// Reboot is what a restart of the machine leaves: every sandbox NotReady, every running
// container Exited with 255, reason Unknown. The namespaces of the networks are gone, but
// what CNI keeps on disk is not: the networks stay up until they are taken down. Nobody
// gets events of it.
func (r *Runtime) Reboot() {
	r.SetDown(true)
	r.mu.Lock()
	for _, c := range r.containerList() {
		if c.state == Running {
			c.exitLocked(255, "Unknown", "Reboot", "KILL")
		}
	}
	for _, s := range r.sandboxList() {
		s.stopLocked("Reboot")
		s.ip = ""
	}
	r.mu.Unlock()
	r.SetDown(false)
}

// wait lets virtual time pass.
func (r *Runtime) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-r.closed:
		return status.Error(codes.Unavailable, "the fake runtime was closed")
	}
}

// afterLocked runs f under the lock when d has passed, unless the returned stop or
// Close comes first.
func (r *Runtime) afterLocked(d time.Duration, f func()) (stop func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, pending := r.timers[t]; !pending {
			return
		}
		delete(r.timers, t)
		f()
	})
	r.timers[t] = struct{}{}
	return func() {
		t.Stop()
		delete(r.timers, t)
	}
}

// newID returns an identifier that depends on the seed, the name and how many things of
// that name came before.
func (r *Runtime) newID(kind, name string) string {
	n := r.idCounts[kind+name]
	r.idCounts[kind+name]++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%s/%d", r.cfg.Seed, kind, name, n))
	return hex.EncodeToString(sum[:])
}

func (r *Runtime) nextSeq() int {
	r.seq++
	return r.seq
}

// serverOptions are the same for every listener.
func (r *Runtime) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(16 << 20),
		grpc.MaxSendMsgSize(16 << 20),
		grpc.UnaryInterceptor(r.interceptUnary),
		grpc.StreamInterceptor(r.interceptStream),
	}
}

const bufferSize = 64 << 10

func newBuffer() *bufconn.Listener { return bufconn.Listen(bufferSize) }
