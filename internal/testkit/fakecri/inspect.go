package fakecri

import (
	"cmp"
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The states as they stand in Transition, SandboxInfo and ContainerInfo.
const (
	Ready    = "Ready"
	NotReady = "NotReady"
	Created  = "Created"
	Running  = "Running"
	Exited   = "Exited"
	Present  = "Present"
	Removed  = "Removed"
	Up       = "Up"
	Down     = "Down"
)

// Kinds of things that change state.
const (
	KindSandbox   = "sandbox"
	KindContainer = "container"
	KindImage     = "image"
	// KindNetwork is a sandbox's own network, by the sandbox's identifier: Up from
	// RunPodSandbox until CNI DEL has succeeded. One on the host's network has none.
	KindNetwork = "network"
)

// Transition is one change of one state.
type Transition struct {
	At   time.Time
	Kind string
	// ID is the sandbox's, container's or image's identifier.
	ID        string
	SandboxID string
	PodUID    string
	Namespace string
	Pod       string
	// Name is the container's name, or the image's.
	Name    string
	Attempt uint32
	// From is "" for what did not exist.
	From, To string
	// Cause is the RPC that did it, or "process" when the process ended by itself, or
	// the method of Runtime that a test called.
	Cause string
	// Signal is what ended the process: "" (its own exit), "TERM" or "KILL".
	Signal string
	// Grace is the timeout of the StopContainer call that ended the process.
	Grace time.Duration
	// SignalledAt is when that call sent the first signal.
	SignalledAt time.Time
	ExitCode    int32
}

// SandboxInfo is a sandbox at one moment. Config is shared and must not be changed.
type SandboxInfo struct {
	ID        string
	Config    *runtimeapi.PodSandboxConfig
	State     string
	CreatedAt time.Time
	// IP is its address while its network namespace is there: until its network was
	// taken down or the machine restarted.
	IP string
	// Network says that its network is up: what CNI ADD took (an address, rules of
	// host ports) is still taken. Only StopPodSandbox and RemovePodSandbox end that.
	Network bool
	Handler string
}

// ContainerInfo is a container at one moment. Config and Resources are shared and must
// not be changed.
type ContainerInfo struct {
	ID, SandboxID                    string
	Config                           *runtimeapi.ContainerConfig
	Sandbox                          *runtimeapi.PodSandboxConfig
	State                            string
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string
	ImageID                          string
	Resources                        *runtimeapi.LinuxContainerResources
}

// PodUID returns the UID of the pod that the container belongs to.
func (c ContainerInfo) PodUID() string { return c.Sandbox.GetMetadata().GetUid() }

// Name returns the container's name in its pod.
func (c ContainerInfo) Name() string { return c.Config.GetMetadata().GetName() }

// ImageInfo is an image that is present.
type ImageInfo struct {
	ID   string
	Tags []string
	Size uint64
}

// Snapshot is everything in the runtime at one moment, each list by time of creation.
type Snapshot struct {
	Sandboxes  []SandboxInfo
	Containers []ContainerInfo
	Images     []ImageInfo
}

// View looks at the runtime from inside OnTransition, where the lock is held.
type View struct{ r *Runtime }

// Snapshot copies the state of this moment.
func (v View) Snapshot() Snapshot { return v.r.snapshotLocked() }

// Live returns the running containers of a name in a pod.
func (v View) Live(podUID, name string) []ContainerInfo {
	var live []ContainerInfo
	for _, c := range v.r.containers {
		if c.state == Running && c.name() == name && c.sandbox.uid() == podUID {
			live = append(live, c.info())
		}
	}
	return live
}

// Call is one RPC that came over gRPC.
type Call struct {
	At      time.Time
	Took    time.Duration
	Method  string
	Subject string
	Err     error
}

// Snapshot copies the state of this moment.
func (r *Runtime) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshotLocked()
}

// History returns every transition so far, in order.
func (r *Runtime) History() []Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history)
}

// Calls returns how often each method was called over gRPC.
func (r *Runtime) Calls() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// CallLog returns the finished calls over gRPC, in the order of their ends.
func (r *Runtime) CallLog() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.callLog)
}

// Pulls returns the requests of PullImage so far, with the credentials given.
func (r *Runtime) Pulls() []*runtimeapi.PullImageRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

func (r *Runtime) snapshotLocked() Snapshot {
	var s Snapshot
	for _, sb := range r.sandboxList() {
		s.Sandboxes = append(s.Sandboxes, sb.info())
	}
	for _, c := range r.containerList() {
		s.Containers = append(s.Containers, c.info())
	}
	for _, img := range r.imageList() {
		s.Images = append(s.Images, ImageInfo{ID: img.id, Tags: slices.Sorted(maps.Keys(img.tags)), Size: img.size})
	}
	return s
}

func (r *Runtime) sandboxList() []*sandbox {
	return slices.SortedFunc(maps.Values(r.sandboxes), func(a, b *sandbox) int { return cmp.Compare(a.seq, b.seq) })
}

func (r *Runtime) containerList() []*container {
	return slices.SortedFunc(maps.Values(r.containers), func(a, b *container) int { return cmp.Compare(a.seq, b.seq) })
}

func (r *Runtime) imageList() []*image {
	return slices.SortedFunc(maps.Values(r.images), func(a, b *image) int { return cmp.Compare(a.seq, b.seq) })
}

// transitionLocked records a change and shows it to the hook.
func (r *Runtime) transitionLocked(tr Transition) {
	tr.At = time.Now()
	if !r.cfg.Forgetful {
		r.history = append(r.history, tr)
	}
	if r.cfg.OnTransition != nil {
		r.cfg.OnTransition(tr, View{r})
	}
}
