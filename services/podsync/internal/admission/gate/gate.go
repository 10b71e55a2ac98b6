// Package gate asks the rules of admission about one pod, with what is known now of
// the node, the machine and the runtime.
//
// It owns where the facts come from. It must never decide: package admission does;
// and it must never wait, for whoever asks holds a lock.
package gate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/services/podsync/internal/admission"
	"github.com/polylet/polylet/services/podsync/internal/host/apparmor"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// Config says what the configuration allows.
type Config struct {
	// Standalone: there is no apiserver.
	Standalone bool
	// Deadline is how long a pod waits for what can still come; 0 waits for ever.
	Deadline time.Duration
	// AllowedUnsafeSysctls are patterns that pods may set.
	AllowedUnsafeSysctls []string
	// NoPodLevelResources rejects pods with resources of their own.
	NoPodLevelResources bool
	// DeclaredFeatures are what the Node says that it can do; nil asks nobody.
	DeclaredFeatures []string
	// Resize says which resizes this node can never carry out.
	Resize resize.Policies
	// GoneDevices are the resources of device plugins that nobody serves. It must not
	// wait; nil: there are none.
	GoneDevices func() []v1.ResourceName
}

// Node is what is known of this node; *nodeinfo.Node has it.
type Node interface {
	Object() *v1.Node
	Allocatable() v1.ResourceList
	ShuttingDown() bool
	// Outdated says whether the object may be older than a moment.
	Outdated(than time.Time) bool
	// ReadSoon asks for a newer one; it returns at once.
	ReadSoon()
}

// Runtime is what is known of the runtime; *observe.Observer has it.
type Runtime interface {
	Runtime() observe.Runtime
}

// Gate asks. Safe for concurrent use.
type Gate struct {
	cfg     Config
	node    Node
	runtime Runtime
	// away is what no victim of a critical pod is blamed for.
	away outage

	mu       sync.Mutex
	pressure admission.Pressure
	// goesDown is nil while nobody has said whether the machine does.
	goesDown *bool
}

// New returns a Gate.
func New(cfg Config, node Node, runtime Runtime) *Gate {
	return &Gate{cfg: cfg, node: node, runtime: runtime}
}

// SetPressure takes in what the node is short of, in place of what was said before; it
// counts for a time, and then the Node does.
func (g *Gate) SetPressure(conditions []v1.NodeConditionType, counts time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.pressure = admission.Pressure{Conditions: conditions, Said: now, Until: now.Add(counts)}
}

// Pressure is what was said last.
func (g *Gate) Pressure() admission.Pressure {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pressure
}

// Short are the conditions that say what the node is short of now, each with the time
// since which the Node says so, zero where only somebody else does; nil while nobody has
// said anything.
func (g *Gate) Short() map[v1.NodeConditionType]time.Time {
	node, said, now := g.node.Object(), g.Pressure(), time.Now()
	if node == nil && !now.Before(said.Until) {
		return nil
	}
	out := map[v1.NodeConditionType]time.Time{}
	for _, t := range said.Holding(node, now) {
		out[t] = time.Time{}
	}
	if node == nil {
		return out
	}
	for _, c := range node.Status.Conditions {
		if _, holds := out[c.Type]; holds && c.Status == v1.ConditionTrue {
			out[c.Type] = c.LastTransitionTime.Time
		}
	}
	return out
}

// SetShutdown takes in whether the machine goes down.
func (g *Gate) SetShutdown(active bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.goesDown = &active
}

// shuttingDown is what was said; the Node says it to a process that was just started.
func (g *Gate) shuttingDown() bool {
	g.mu.Lock()
	said := g.goesDown
	g.mu.Unlock()
	if said != nil {
		return *said
	}
	return g.node.ShuttingDown()
}

// Question is which pod asks, and beside which others.
type Question struct {
	Pod    *v1.Pod
	Static bool
	// Asked is when the pod first asked, Waited how long that is ago.
	Asked  time.Time
	Waited time.Duration
	// Active are the admitted pods that have not ended.
	Active []*v1.Pod
	// Leaving are those of Active that are being stopped, and for how long they are
	// though something of them runs.
	Leaving map[types.UID]time.Duration
	// Gone are those of Active that their source does not have any more.
	Gone map[types.UID]bool
}

// Admit says whether the pod may run. Static pods do not wait for a Node object:
// the apiserver that has it may be one of them.
func (g *Gate) Admit(q Question) admission.Answer {
	node := g.node.Object()
	g.away.discount(q.Leaving, g.runtime.Runtime().Err != nil, time.Now())
	in := admission.Input{
		Pod: q.Pod, Static: q.Static, Standalone: g.cfg.Standalone || q.Static && node == nil, Node: node,
		Waited: q.Waited, Deadline: g.cfg.Deadline, Active: q.Active, Leaving: q.Leaving, Gone: q.Gone, Host: g.host(q.Pod),
		NodeOutdated: g.node.Outdated(q.Asked), Said: g.Pressure(), Now: time.Now(),
	}
	if in.Standalone {
		in.Allocatable = g.node.Allocatable()
	}
	if g.cfg.GoneDevices != nil {
		in.GoneDevices = g.cfg.GoneDevices()
	}
	answer := admission.Check(in)
	if answer.Decision == podstate.AdmissionPending && in.NodeOutdated {
		g.node.ReadSoon()
	}
	return answer
}

// Unmet names what an update of a pod needs and this node does not have.
func (g *Gate) Unmet(old, now *v1.Pod) ([]string, error) {
	return admission.UnmetByUpdate(g.cfg.DeclaredFeatures, buildinfo.KubernetesVersion, old, now)
}

// Resize is a pod that asks for other resources.
type Resize struct {
	// Pod is what is wanted, Allocated the same pod with what it has.
	Pod, Allocated *v1.Pod
	Static         bool
	// Active are the other admitted pods that have not ended, with what they are
	// allocated.
	Active []*v1.Pod
}

// Resize says why it cannot be allocated; nil when it can. What this node can never
// do is infeasible, and what admission would not take now is deferred.
func (g *Gate) Resize(q Resize) *podstate.ResizePending {
	if why := resize.Infeasible(q.Pod, q.Allocated, q.Static, g.cfg.Resize); why != "" {
		return &podstate.ResizePending{Reason: v1.PodReasonInfeasible, Message: why}
	}
	in := admission.Input{
		Pod: q.Pod, Static: q.Static, Standalone: g.cfg.Standalone, Node: g.node.Object(), Active: q.Active, Resize: true,
		Host: g.host(q.Pod), Said: g.Pressure(), Now: time.Now(),
	}
	if in.Standalone {
		in.Allocatable = g.node.Allocatable()
	}
	if a := admission.Check(in); a.Decision != podstate.Admitted {
		return &podstate.ResizePending{Reason: v1.PodReasonDeferred, Cause: a.Reason, Message: a.Message}
	}
	return nil
}

// host is what of the machine and the runtime matters to admission.
func (g *Gate) host(pod *v1.Pod) admission.Host {
	h := admission.Host{
		AllowedUnsafeSysctls: g.cfg.AllowedUnsafeSysctls, NoPodLevelResources: g.cfg.NoPodLevelResources,
		DeclaredFeatures: g.cfg.DeclaredFeatures, Release: buildinfo.KubernetesVersion, ShuttingDown: g.shuttingDown(),
	}
	if status := g.runtime.Runtime().Status; status != nil {
		h.NoSupplementalGroupsPolicy = !status.GetFeatures().GetSupplementalGroupsPolicy()
	}
	if admission.NeedsAppArmor(pod) { // a look into the kernel's memory: it does not block
		h.NoAppArmor = !apparmor.Enabled()
	}
	return h
}
