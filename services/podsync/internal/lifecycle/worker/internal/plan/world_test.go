package plan

import (
	"fmt"
	"math/rand"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world carries the planner's actions out on plain data: a runtime whose
// containers end as their exits say. It is the worker and the executor in one,
// without goroutines.
type world struct {
	s State
	// exits are the exit codes of a container's starts, in order; after the
	// last one it runs on.
	exits map[string][]int32
	// runs is how long a start with an exit code runs.
	runs time.Duration
	// fail makes an action fail; nil never does.
	fail func(podstate.Action) *Failure
	// volumes says which volumes fail to be set up; nil for none.
	volumes func(podstate.Action) map[string]Failure
	// standing are those of them that stand all the same.
	standing []string
	// resize carries out what belongs to a resize; false for all else.
	resize func(podstate.Action) bool
	// killCode is the exit code of containers that are killed.
	killCode int32
	ips      []string // of a sandbox; one when nil
	ends     map[string]time.Time
	next     int
	log      []string
	out      Output
}

func newWorld(pod *v1.Pod) *world {
	return &world{
		s: State{
			Pod: pod, UID: pod.UID, Now: start,
			Admission: podstate.Admission{Decision: podstate.Admitted},
			Node:      Node{IPs: []string{"10.0.0.1"}, NetworkReady: true, RuntimeName: "containerd"},
			Observed:  podstate.Observed{Known: true},
			Probes:    map[podstate.ProbeKey]podstate.ProbeResult{}, Images: map[string]Image{},
			InFlight: map[podstate.Key]podstate.Action{}, Failures: map[podstate.Key]Failure{}, Stops: map[string]ContainerStop{},
			StoppedSandboxes: map[string]bool{},
		},
		exits: map[string][]int32{}, runs: time.Second, killCode: 137, ends: map[string]time.Time{},
	}
}

// step plans once, carries the actions out and says whether there were any.
func (w *world) step() bool {
	w.out = Plan(w.s)
	w.s.Reported = w.out.Status
	if w.out.Terminating && w.s.EndSince.IsZero() {
		w.s.EndSince = w.s.Now
	}
	for _, a := range w.out.Actions {
		w.do(a)
	}
	return len(w.out.Actions) > 0
}

// settle steps until there is nothing to do, going on in time to the next
// wake-up or exit, for at most the given time. It returns how many steps it took.
func (w *world) settle(limit time.Duration) int {
	until, steps := w.s.Now.Add(limit), 0
	for ; steps < 10000; steps++ {
		if w.step() {
			continue
		}
		next := w.out.Wake
		for _, at := range w.ends {
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if next.IsZero() || next.After(until) {
			return steps
		}
		if next.After(w.s.Now) {
			w.s.Now = next
		}
		w.expire()
	}
	return steps
}

// expire ends the containers whose time has come.
func (w *world) expire() {
	for id, at := range w.ends {
		if at.After(w.s.Now) {
			continue
		}
		delete(w.ends, id)
		c := w.container(id)
		if c == nil || c.State != podstate.StateRunning {
			continue
		}
		code := int32(0)
		if left := w.exits[c.Name]; len(left) > 0 {
			code, w.exits[c.Name] = left[0], left[1:]
		}
		w.end(c, code)
	}
}

func (w *world) end(c *podstate.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt, c.Reason = podstate.StateExited, code, w.s.Now, "Error"
	if code == 0 {
		c.Reason = "Completed"
	}
}

func (w *world) container(id string) *podstate.Container {
	for i := range w.s.Observed.Containers {
		if w.s.Observed.Containers[i].ID == id {
			return &w.s.Observed.Containers[i]
		}
	}
	return nil
}

// newest is the newest container of a name.
func (w *world) newest(name string) *podstate.Container {
	for i := range w.s.Observed.Containers {
		if w.s.Observed.Containers[i].Name == name {
			return &w.s.Observed.Containers[i]
		}
	}
	return nil
}

func (w *world) do(a podstate.Action) {
	w.log = append(w.log, fmt.Sprintf("%s %s", a.Kind, a.Container))
	out := Outcome{Action: a, At: w.s.Now, ImageRef: "sha256:1"}
	if w.fail != nil {
		if out.Failure = w.fail(a); out.Failure != nil {
			out.Failure.At = w.s.Now
			w.s.Ended(out)
			return
		}
	}
	if w.resize != nil && w.resize(a) {
		delete(w.s.Failures, a.Key)
		return
	}
	if a.Kind == podstate.SetupVolumes && w.volumes != nil {
		if out.Volumes = w.volumes(a); len(out.Volumes) > 0 {
			out.Failure, out.Standing = &Failure{}, w.standing
		}
	}
	if a.Volume != "" {
		out.ImageRef = "sha256:" + a.Volume
	}
	switch a.Kind {
	case podstate.MakeSandbox:
		w.next++
		if w.ips == nil {
			w.ips = []string{"10.88.0.2"}
		}
		sb := podstate.Sandbox{ID: fmt.Sprintf("s%d", w.next), Attempt: uint32(a.Attempt), Ready: true, CreatedAt: w.s.Now, IPs: w.ips, HostNetwork: w.s.Pod.Spec.HostNetwork, PodStarted: a.PodStarted}
		w.s.Observed.Sandboxes = append([]podstate.Sandbox{sb}, w.s.Observed.Sandboxes...)
	case podstate.StartContainer:
		w.start(a)
	case podstate.BeginStop:
		w.s.Stops[a.ID] = w.s.Stops[a.ID].Ask(a, w.s.Now)
	case podstate.KillContainer:
		w.s.Stops[a.ID] = w.s.Stops[a.ID].Ask(a, w.s.Now)
		w.end(w.container(a.ID), w.killCode)
	case podstate.StopSandbox:
		for i := range w.s.Observed.Sandboxes {
			if w.s.Observed.Sandboxes[i].ID == a.ID {
				w.s.Observed.Sandboxes[i].Ready = false
			}
		}
	case podstate.RemoveContainer:
		w.drop(a.ID)
	case podstate.RemoveSandbox:
		for i := range w.s.Observed.Sandboxes {
			if w.s.Observed.Sandboxes[i].ID == a.ID {
				w.s.Observed.Sandboxes = append(w.s.Observed.Sandboxes[:i:i], w.s.Observed.Sandboxes[i+1:]...)
				break
			}
		}
	}
	w.s.Ended(out)
}

// asked is the stop of a container that was asked to end then, within so many seconds.
func asked(then time.Time, cause podstate.Cause, seconds int64) ContainerStop {
	return ContainerStop{}.Ask(podstate.Action{Cause: cause, GraceTotalSeconds: seconds}, then)
}

func (w *world) drop(id string) {
	for i := range w.s.Observed.Containers {
		if w.s.Observed.Containers[i].ID == id {
			w.s.Observed.Containers = append(w.s.Observed.Containers[:i:i], w.s.Observed.Containers[i+1:]...)
			return
		}
	}
}

func (w *world) start(a podstate.Action) {
	w.next++
	c := podstate.Container{
		ID: fmt.Sprintf("c%d", w.next), SandboxID: a.SandboxID, Name: a.Container, RestartCount: a.Attempt,
		State: podstate.StateRunning, CreatedAt: w.s.Now, StartedAt: w.s.Now, Backoff: a.Backoff, Round: a.Round, SpecHash: podutil.Hash(w.specOf(a.Container)),
		BackoffKey: podutil.BackoffKey(w.specOf(a.Container)),
	}
	made := resources.Effective(w.s.Pod, w.specOf(a.Container))
	kernel := resources.ForContainer(made, w.s.Node.Quotas)
	c.Made, c.Kernel = &made, &kernel
	for _, old := range w.s.Observed.Containers {
		if old.Name == c.Name && old.State == podstate.StateRunning {
			panic("two live containers named " + c.Name)
		}
	}
	w.s.Observed.Containers = append([]podstate.Container{c}, w.s.Observed.Containers...)
	if len(w.exits[c.Name]) > 0 {
		w.ends[c.ID] = w.s.Now.Add(w.runs)
	}
}

func (w *world) specOf(name string) *v1.Container {
	for _, v := range views(&w.s) {
		if v.spec.Name == name {
			return v.spec
		}
	}
	panic("no container " + name)
}

func newPlanner(s *State) *planner {
	p := &planner{}
	p.look(s)
	return p
}

func views(s *State) []*view { return newPlanner(s).views }

// count is how often an action was carried out.
func (w *world) count(entry string) int {
	n := 0
	for _, l := range w.log {
		if l == entry {
			n++
		}
	}
	return n
}

func testPod(policy v1.RestartPolicy, names ...string) *v1.Pod {
	grace := int64(30)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u1", Generation: 1},
		Spec:       v1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: &grace},
	}
	for _, n := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: n, Image: "img"})
	}
	return pod
}

func withInit(pod *v1.Pod, names ...string) *v1.Pod {
	for _, n := range names {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: n, Image: "img"})
	}
	return pod
}

func withSidecar(pod *v1.Pod, names ...string) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	for _, n := range names {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: n, Image: "img", RestartPolicy: &always})
	}
	return pod
}

// withImageVolume adds an image volume that the regular container of this
// index mounts.
func withImageVolume(pod *v1.Pod, container int, name string) *v1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:" + name}}})
	c := &pod.Spec.Containers[container]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	return pod
}

// randomWorld is a pod of any shape whose actions fail now and then.
func randomWorld(seed int64) *world {
	r := rand.New(rand.NewSource(seed))
	policy := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[r.Intn(3)]
	pod := testPod(policy, "a", "b")
	pod.Spec.HostNetwork = r.Intn(4) == 0
	for i := range r.Intn(3) {
		if name := fmt.Sprintf("i%d", i); r.Intn(2) == 0 {
			withInit(pod, name)
		} else {
			withSidecar(pod, name)
		}
	}
	if r.Intn(3) == 0 {
		withImageVolume(pod, 1, "v")
	}
	w := newWorld(pod)
	for _, v := range views(&w.s) {
		for range r.Intn(3) {
			w.exits[v.spec.Name] = append(w.exits[v.spec.Name], int32(r.Intn(2)))
		}
		if v.class == ordinaryInit { // it ends in the end
			w.exits[v.spec.Name] = append(w.exits[v.spec.Name], 0, 0, 0, 0)
		}
	}
	w.fail = func(a podstate.Action) *Failure {
		if r.Intn(5) == 0 {
			return &Failure{Reason: "Error", Message: "seeded failure"}
		}
		return nil
	}
	return w
}

func ptr[T any](v T) *T { return &v }

// crashing is the state of a pod whose container ran once and exited.
func crashing(pod *v1.Pod, more ...podstate.Container) State {
	name := pod.Spec.Containers[0].Name
	return State{
		Pod: pod, UID: pod.UID, Now: start.Add(time.Hour), Admission: podstate.Admission{Decision: podstate.Admitted},
		Node:    Node{NetworkReady: true, RuntimeName: "containerd"},
		Volumes: Volumes{Of: map[string]Volume{"": {SetUp: true}}},
		Observed: podstate.Observed{
			Known:     true,
			Sandboxes: []podstate.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}, CreatedAt: start}},
			Containers: append(more, podstate.Container{
				ID: "c0", SandboxID: "s", Name: name, State: podstate.StateExited, ExitCode: 1, CreatedAt: start, StartedAt: start, FinishedAt: start.Add(time.Second),
			}),
		},
	}
}

// scene is a pod as the runtime has it, written down in words: "name state",
// where state is running, created, unknown, starting (its postStart hook runs),
// unready (its startup probe has not succeeded) or an exit code; a name that is
// not there has no container.
func scene(pod *v1.Pod, words ...string) State {
	s := newWorld(pod).s
	s.Observed.Sandboxes = []podstate.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}, HostNetwork: pod.Spec.HostNetwork, CreatedAt: start}}
	s.Volumes.Ended(s.Pod, podstate.Action{Volumes: volumeNames(s.Pod)}, nil, nil)
	for n, w := range words {
		name, state, _ := strings.Cut(w, " ")
		c := podstate.Container{ID: fmt.Sprint("c", n), SandboxID: "s", Name: name, CreatedAt: start, StartedAt: start}
		switch state {
		case "running", "starting":
			c.State = podstate.StateRunning
			if state == "starting" {
				c.Hook = podstate.HookRunning
				s.InFlight[podstate.Key{Kind: podstate.StartContainer, Object: name}] = podstate.Action{SandboxID: "s"}
			}
		case "unready":
			c.State = podstate.StateRunning
			s.Probes[podstate.ProbeKey{Container: name, Type: podstate.Startup}] = podstate.ProbeResult{ContainerID: c.ID}
		case "created":
			c.State = podstate.StateCreated
		case "unknown":
			c.State = podstate.StateUnknown
		default:
			c.State, c.FinishedAt = podstate.StateExited, start.Add(time.Second)
			if _, err := fmt.Sscan(state, &c.ExitCode); err != nil {
				panic(err)
			}
		}
		s.Observed.Containers = append(s.Observed.Containers, c)
	}
	return s
}
