package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// State is all that the planner may look at. It is plain data; the planner
// changes none of it.
type State struct {
	// Desired is what is wanted as its source has it, and Pod the same with the cpu
	// and memory that are allocated; see Resize. Nil for a pod that runs but that no
	// source knows: it is stopped and removed.
	Desired, Pod *v1.Pod
	// UID of the pod; equal to Pod.UID when Pod is set.
	UID types.UID
	// Static is true for pods from a file or URL.
	Static bool
	// Removed is true when the source no longer wants the pod (its object is
	// gone), which is stronger than a deletionTimestamp.
	Removed bool
	// Returns: it is wanted anew when it has ended.
	Returns bool
	// Stop asks for the pod's end for a reason of the node's own; nil when none.
	Stop *podstate.Stop
	// StopUnkept: Stop would not outlive a crash yet. It is kept before it is
	// acted upon, unless that fails: the disk may be full, and be the reason.
	StopUnkept bool
	// StopPeriods are the grace periods that the node has given for its own reason,
	// each shorter than the one before, and since when; none: the pod has its own.
	StopPeriods []Period
	// Admission is what the admission said; AdmitAgain is how soon it is asked again
	// while it could not decide, zero when somebody else sees to that.
	Admission  podstate.Admission
	AdmitAgain time.Duration
	// PutOff: the pod was admitted, and is not to start yet; nil when it may.
	PutOff *podstate.PutOff
	// Begun: the pod was admitted in a previous run.
	Begun bool
	// Resize is how a change of the pod's cpu and memory stands.
	Resize Resize
	// Node is what of the node matters to a pod.
	Node Node
	// Observed is the runtime's state, the source of truth.
	Observed podstate.Observed
	// Reported is the status that the last call of Plan returned or, for the
	// first call, the one found on the API object: what the world has been told.
	// Readiness and start of containers whose id it names are taken from it
	// until probes speak.
	Reported v1.PodStatus
	// StatusKept: Reported is the status that the pod has ended with, and outlives a crash
	// though the apiserver does not know it.
	StatusKept bool
	// Waits is what the last call of Plan said that the pod waits for.
	Waits []podstate.Wait
	// Probes holds the last result of each probe.
	Probes map[podstate.ProbeKey]podstate.ProbeResult
	// Images holds what is known of each container's image, by container name,
	// and of the images of image volumes, by VolumeKey.
	Images map[string]Image
	// Volumes is how the volumes stand.
	Volumes Volumes
	// InFlight holds the actions that run now, by key.
	InFlight map[podstate.Key]podstate.Action
	// Failures holds the last failure of each action that failed since it last
	// succeeded, by key.
	Failures map[podstate.Key]Failure
	// Stops holds the stops of containers that have begun in this run of the
	// process, by container id; BeginStop and KillContainer begin one.
	Stops map[string]ContainerStop
	// Unremovable holds the ids of containers that were made and never started, and that
	// the runtime refuses to remove: the next attempt starts beside them.
	Unremovable map[string]bool
	// StoppedSandboxes holds the ids of the sandboxes whose StopSandbox has
	// succeeded in this run of the process: their network is down. What the runtime
	// shows of a sandbox does not tell.
	StoppedSandboxes map[string]bool
	// Cleaned says which parts of a finished pod are gone.
	Cleaned Cleaned
	// LogCounts is the highest <n>.log found per container on the disk when the
	// runtime knows no container of that name; absent when there is none.
	LogCounts map[string]int
	// Excess are dead containers, by id, that are too many for the node as a
	// whole, however many of their name may stay; nil when none are.
	Excess map[string]bool
	// Reclaim: the node needs the room of all that has ended and that nobody needs, at once.
	Reclaim bool
	// EndSince is when this process first saw that the pod must end; zero while
	// it must not. The worker sets it when Output.Terminating first turns true.
	EndSince time.Time
	// DeletionSince is when this process first saw that the pod's object is being
	// deleted with the grace period that it has now; zero while it is not. The
	// object's own timestamp has whole seconds, and counts from the first deletion
	// though a later one has shortened the period.
	DeletionSince time.Time
	// Shortened are the periods of the deletions before, of which each has
	// shortened the one before it.
	Shortened []Period
	// Now is the time to plan for.
	Now time.Time
	// Hooks is how postStart hooks stand that this process has run, by container id.
	Hooks map[string]podstate.Hook
	// begun is what Begin took in last.
	begun   *v1.Pod
	repeats repeats
}

// NewState is the state of a pod of which nothing is known.
func NewState(uid types.UID) State {
	return State{
		UID: uid, Probes: map[podstate.ProbeKey]podstate.ProbeResult{}, Images: map[string]Image{},
		InFlight: map[podstate.Key]podstate.Action{}, Failures: map[podstate.Key]Failure{},
		Stops: map[string]ContainerStop{}, Unremovable: map[string]bool{}, StoppedSandboxes: map[string]bool{}, Hooks: map[string]podstate.Hook{},
	}
}

// Begin takes in the time, and what has changed of the pod since it was last called.
func (s *State) Begin(now time.Time) {
	s.Now = now
	s.DeletedAnew(s.begun, now)
	s.Volumes.changed(s.begun, s.Pod)
	s.begun = s.Pod
	s.takeHooks()
}

// Node is what of the node a pod's status needs.
type Node struct {
	// IPs are the host's addresses, primary first; empty when not yet known. IPsSought
	// says that they were looked for once, IPsKnown that this went well where the node's
	// object was known: there are no others.
	IPs                 []string
	IPsSought, IPsKnown bool
	// RuntimeName is the prefix of container ids in the status, e.g. containerd.
	RuntimeName string
	// FirstContainerRestartPeriod is the first crash-loop back-off; zero means 10 s.
	FirstContainerRestartPeriod time.Duration
	// NoRestartRules: the restart policies and rules of containers are not
	// looked at (gate ContainerRestartRules).
	NoRestartRules bool
	// NoRestartAll: rules with the action RestartAllContainers do not match
	// (gate RestartAllContainersOnContainerExits).
	NoRestartAll bool
	// NoReadyToStart: the condition PodReadyToStartContainers is not shown (gate
	// PodReadyToStartContainersCondition).
	NoReadyToStart bool
	// NetworkReady is the runtime's NetworkReady condition.
	NetworkReady bool
	// NetworkMessage says why it is not ready.
	NetworkMessage string
	// MaxContainerRestartPeriod caps the crash-loop back-off; zero means 300 s.
	MaxContainerRestartPeriod time.Duration
	// RecursiveReadOnly: the runtime's usual handler can make the mounts below a
	// read-only one read-only too.
	RecursiveReadOnly bool
	// Quotas says how cpu limits become quotas.
	Quotas resources.Quotas
	// NoPodLevelResize: what the pod as a whole has is not shown, for the gate
	// InPlacePodLevelResourcesVerticalScaling is off.
	NoPodLevelResize bool
	// DeadContainers is how many dead instances of each container stay, for
	// their logs; one or two that the status needs stay in any case. All stay
	// when it is negative.
	DeadContainers int
	// DeadContainerTTL is how old a dead container is before it may go.
	DeadContainerTTL time.Duration
}

// Image is what is known of a container's image.
type Image struct {
	// Spec is the image's name in the pod's spec that this is about.
	Spec string
	// Ref is the reference to run, set when the image is present and usable.
	Ref string
	// RestartCount is the start for which the pull policy was applied; another
	// start applies it anew. It has no meaning for an image volume.
	RestartCount int
	// Early: that was before the container was due. What ran since may have brought
	// another image of the name, so the policy is applied once more.
	Early bool
	// At is when it was found.
	At time.Time
}

// Cleaned says what is gone of a pod that has ended.
type Cleaned struct {
	Volumes bool
	Cgroup  bool
	// Directories: pod directory and, when the pod is not wanted any more, logs.
	Directories bool
	// API is true when the pod's object is gone from the apiserver (or there is none).
	API bool
}

// Failure is how an action failed last.
type Failure struct {
	// Reason is the waiting reason or event reason, e.g. ErrImagePull,
	// CreateContainerConfigError.
	Reason string
	// Message is the whole error.
	Message string
	// Volume is what kind of thing keeps a volume; VolumeUnknown also of what is none's.
	Volume podstate.VolumeCause
	// Count of failures in a row, at least 1.
	Count int
	// At is when it failed last.
	At time.Time
	// Retry is when who failed wants to be asked again; zero: that follows from Count.
	Retry time.Time
	// Away is true when the runtime could not be reached: that says nothing
	// about the object, and passes as soon as the runtime is back.
	Away bool
	// Early: an image was looked for before its container was due, and since then no
	// more. That it could not be had then says nothing: an init container may be what
	// brings it.
	Early bool
}

// After is the failure f of an action, with what of the failure before it counts on;
// the zero value is that of none.
func (f Failure) After(before Failure, a podstate.Action) Failure {
	f.Early = a.Early && (before.Count == 0 || before.Early)
	f.Count = 1
	if before.Early == f.Early {
		f.Count += before.Count
	}
	return f
}
