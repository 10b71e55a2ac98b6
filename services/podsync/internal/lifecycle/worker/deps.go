package worker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/execute"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Executor carries actions out; *execute.Executor has it.
type Executor interface {
	Do(life, ctx context.Context, t execute.Task) (execute.Result, error)
	LogCounts(pod *v1.Pod) map[string]int
}

// Status sends statuses to the apiserver; *status.Writer has it.
type Status interface {
	Set(pod *v1.Pod, st v1.PodStatus)
	Forget(uid types.UID)
}

// Probes is told which probes should run, and tells what they said; *probe.Board has it.
type Probes interface {
	Set(pod *v1.Pod, targets []podstate.Target)
	Remove(uid types.UID)
	// Results are the last ones, also those of a previous run.
	Results(uid types.UID) map[podstate.ProbeKey]podstate.ProbeResult
}

// Conditions keeps since when the conditions of static pods stand; *conditions.Keeper
// has it.
type Conditions interface {
	Of(uid types.UID) []v1.PodCondition
	Set(uid types.UID, conditions []v1.PodCondition)
	Forget(uid types.UID)
	Prune(exists func(types.UID) bool)
}

// Ends is what the node decided to end; *stopping.Keeper has it.
type Ends interface {
	// Of is the decision of a previous run; nil when there is none.
	Of(uid types.UID) *podstate.Stop
	// Put keeps a decision: when it returns nil, a crash does not lose it.
	Put(ctx context.Context, uid types.UID, stop podstate.Stop) error
	// Last is the status that a pod has ended with, of which the apiserver may not know;
	// nil when none was kept.
	Last(uid types.UID) *v1.PodStatus
	// Withdraw drops a decision and leaves the last status.
	Withdraw(uid types.UID)
	Forget(uid types.UID)
	Prune(exists func(types.UID) bool)
}

// Events records events on pods, containers and the node; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(pod *v1.Pod, container, eventType, reason, message string)
	// Annotated records an event on a pod, with annotations of its own.
	Annotated(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
	// Node records an event on the node.
	Node(eventType, reason, message string)
}

// Mirrors is told what becomes of static pods; *mirror.Keeper has it. Its
// methods must not block and not call the Registry.
type Mirrors interface {
	// Orphan names a pod that runs though no source knows it.
	Orphan(uid types.UID)
	// AllKnown says that all those of a previous run were named.
	AllKnown()
	// Ended says that nothing of a pod runs any more.
	Ended(uid types.UID)
}

type noMirrors struct{}

func (noMirrors) Orphan(types.UID) {}
func (noMirrors) AllKnown()        {}
func (noMirrors) Ended(types.UID)  {}

// Pods shows the pods to others; *podcache.Pods has it.
type Pods interface {
	Set(pod podcache.Pod)
	Remove(uid types.UID)
}

// Config of a Registry.
type Config struct {
	// Sources are the names of all sources; pods that no source knows are
	// ended only when each of them has been heard.
	Sources []string
	// AdmitAgain is how often admission that could not decide is asked again,
	// beside each change of the node; 1 s when zero.
	AdmitAgain time.Duration
	// MaxDead is how many dead containers stay on the node; nil for no bound.
	MaxDead *int
}

// Node is what of the node a pod's status needs, as the planner has it.
type Node = plan.Node

// Deps are what a Registry is given; all but Mirrors, Conditions, Ends, Short, Unmet,
// OnDisk, AllKnown, InDoubt and ActiveChanged must be set.
type Deps struct {
	Executor Executor
	Status   Status
	Probes   Probes
	Events   Events
	Pods     Pods
	Mirrors  Mirrors
	// Conditions may be nil: the conditions of static pods then stand since the
	// start of this process.
	Conditions Conditions
	// Ends may be nil: a crash then loses that the node ends a pod.
	Ends Ends
	// Metrics may be nil.
	Metrics *Metrics
	// Timelines may be nil; then the Registry makes its own.
	Timelines *timeline.Book
	// Admit decides; it must not block and not call the Registry.
	Admit func(Question) Answer
	// Short are the conditions that say what the node is short of, as evictions.Short,
	// which is nil while that is not known. The function may be nil: of nothing ever. It must not block and not call the Registry.
	Short func() map[v1.NodeConditionType]time.Time
	// Unmet names the features that an update of a pod needs and that this node
	// does not have; nil asks nobody. It must not block and not call the Registry.
	Unmet func(old, now *v1.Pod) ([]string, error)
	// Resize decides on a resize: nil when it can be allocated. It must not
	// block and not call the Registry.
	Resize func(ResizeQuestion) *podstate.ResizePending
	// Allocations is what pods were allocated in previous runs; nil for nothing.
	Allocations Allocations
	// Node is what of the node matters to a status; it must not block.
	Node func() Node
	// OnDisk lists pods that left something on the disk or in cgroups.
	OnDisk func(ctx context.Context) []types.UID
	// AllKnown is told once that all pods are known that go on from a
	// previous run, with what says whether one is; may be nil. It must
	// not block and not call the Registry.
	AllKnown func(exists func(types.UID) bool)
	// InDoubt is told which static pods go on, and are not looked after, because a
	// manifest cannot be read that may be theirs, each time that changes; may be nil.
	// It must not block and not call the Registry.
	InDoubt func(pods []string)
	// ActiveChanged is told that Active is something else; may be nil. It must not block
	// and not call the Registry.
	ActiveChanged func()
}
