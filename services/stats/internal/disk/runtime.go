package disk

import (
	"context"
	"sync"
	"time"
)

// Usage is the runtime's own account of a layer or of a filesystem.
type Usage struct {
	// Time is when the runtime measured it; zero: it has not measured the layer yet.
	Time time.Time
	// Mountpoint is where the filesystem is mounted.
	Mountpoint string
	// Bytes and Inodes are taken.
	Bytes, Inodes uint64
}

// RuntimeUsage is what the runtime reports.
type RuntimeUsage struct {
	// Layers are writable layers by container id.
	Layers map[string]Usage
	// Images and Containers are the filesystems of images and of writable layers.
	Images, Containers []Usage
	// SandboxImage is the image that sandboxes are made of; may be empty.
	SandboxImage string
	// Asked is when the runtime was asked for it.
	Asked time.Time
}

// listing is how long after a container's end a runtime may take to know what its layer has:
// containerd counts each ten seconds what lies in them.
const listing = 30 * time.Second

// Omits says whether a layer is none that the runtime will say anything of: some list no
// container that has ended.
func (u RuntimeUsage) Omits(l Layer) bool {
	_, listed := u.Layers[l.Container]
	return !listed && !l.Over.IsZero() && u.Asked.Sub(l.Over) > listing
}

// Source asks the runtime; it must respect ctx.
type Source func(ctx context.Context) (RuntimeUsage, error)

// stale is how old an answer may be to be given while a new one is fetched.
const stale = time.Minute

// Runtime keeps the runtime's last answer. Safe for concurrent use.
type Runtime struct {
	deadline time.Duration
	source   Source

	mu      sync.Mutex
	last    RuntimeUsage
	at      time.Time
	running chan struct{} // Closed when the question under way is answered.
}

// NewRuntime returns a Runtime that has no answer yet; deadline bounds one question.
func NewRuntime(deadline time.Duration, source Source) *Runtime {
	return &Runtime{deadline: deadline, source: source}
}

// Get returns the runtime's account. One that is not older than fresh is
// returned as it is; an older one too while it is not a minute beyond that,
// and a new one is fetched behind the caller's back; else it waits for the
// answer until ctx is done and returns whatever there is then.
func (r *Runtime) Get(ctx context.Context, fresh time.Duration) RuntimeUsage {
	return r.get(ctx, fresh, fresh+stale)
}

// Renew is Get, but waits for a new account.
func (r *Runtime) Renew(ctx context.Context) RuntimeUsage { return r.get(ctx, 0, 0) }

// get fetches an account that is older than fresh, and waits when it is older than old.
func (r *Runtime) get(ctx context.Context, fresh, old time.Duration) RuntimeUsage {
	r.mu.Lock()
	age := time.Since(r.at)
	if r.running == nil && (r.at.IsZero() || age > fresh) {
		done := make(chan struct{})
		r.running = done
		go r.fetch(context.WithoutCancel(ctx), done)
	}
	running, last := r.running, r.last
	wait := running != nil && (r.at.IsZero() || age > old)
	r.mu.Unlock()
	if !wait {
		return last
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
	return r.Last()
}

// Last returns the last account without asking; empty when there is none.
func (r *Runtime) Last() RuntimeUsage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *Runtime) fetch(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	asked := time.Now()
	usage, err := r.source(ctx)
	usage.Asked = asked
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last, r.at = usage, time.Now()
	}
	r.running = nil
	close(done)
}
