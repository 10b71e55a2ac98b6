package plan

import (
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"

	"github.com/polylet/polylet/internal/testkit/raced"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// storm is a world in which actions take time, end in any order, fail, and are
// cut short with or without effect; in which the agent restarts, and containers,
// sandboxes and definitions change behind its back.
type storm struct {
	*world
	r       *rand.Rand
	pending []podstate.Action
	noisy   bool
	// refused is the first change of the status that the apiserver would refuse.
	refused string
	// launched is the pod as it was when each action began, and lost: the answer to the
	// one that is carried out now does not come.
	launched map[podstate.Key]*v1.Pod
	lost     bool
	// before is called before each plan, restart when the agent restarts, and more when
	// something may change behind its back; see gale.
	before, restart, more func()
}

func newStorm(seed int64) *storm {
	r := rand.New(rand.NewSource(seed))
	s := stormOf(anyPod(r), r)
	s.s.Static = r.Intn(5) == 0
	s.exitsOf(func() int32 { return []int32{0, 0, 1, exitForAll}[r.Intn(4)] })
	return s
}

func stormOf(pod *v1.Pod, r *rand.Rand) *storm {
	s := &storm{world: newWorld(pod), r: r, noisy: true, launched: map[podstate.Key]*v1.Pod{}, before: func() {}, more: func() {}}
	s.restart = s.forget
	return s
}

// anyPod is a pod of any shape.
func anyPod(r *rand.Rand) *v1.Pod {
	pod := testPod([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[r.Intn(3)], "a", "b")
	pod.Spec.HostNetwork = r.Intn(4) == 0
	for i := range r.Intn(4) {
		if name := fmt.Sprintf("i%d", i); r.Intn(2) == 0 {
			withInit(pod, name)
		} else {
			withSidecar(pod, name)
		}
	}
	if r.Intn(5) == 0 {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "img"}}}
	}
	if r.Intn(8) == 0 {
		limit := int64(r.Intn(600))
		pod.Spec.ActiveDeadlineSeconds = &limit
	}
	own := []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever}
	actions := []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}
	for n, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if r.Intn(3) == 0 {
				c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
			}
			if r.Intn(3) == 0 {
				c.LivenessProbe = &v1.Probe{}
			}
			if r.Intn(3) > 0 {
				continue
			}
			if c.RestartPolicy == nil {
				c.RestartPolicy = &own[1-n+r.Intn(2+n)] // an init container's Always makes it a sidecar
			}
			c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: actions[r.Intn(2)], ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{exitForAll},
			}}}
		}
	}
	return pod
}

// exitsOf gives each container a few exits, and each ordinary init container an end.
func (s *storm) exitsOf(code func() int32) {
	for _, v := range views(&s.s) {
		name := v.spec.Name
		s.exits[name] = nil
		for range s.r.Intn(3) {
			s.exits[name] = append(s.exits[name], code())
		}
		if v.class == ordinaryInit {
			s.exits[name] = append(s.exits[name], make([]int32, 40)...)
		}
	}
}

// turn plans once, lets some of what runs end, and lets time pass.
func (s *storm) turn() {
	s.before()
	out := Plan(s.s)
	if why := forbidden(s.s.Pod, s.s.Reported, out.Status); why != "" && s.refused == "" {
		s.refused = why
	}
	s.out, s.s.Reported = out, out.Status
	if out.Terminating && s.s.EndSince.IsZero() {
		s.s.EndSince = s.s.Now
	}
	for _, key := range out.Cancel {
		s.finish(key, s.r.Intn(2) == 0, false)
	}
	for _, a := range out.Actions {
		if a.Replace {
			s.finish(a.Key, false, false)
		}
		if _, runs := s.s.InFlight[a.Key]; runs {
			continue
		}
		s.s.InFlight[a.Key], s.launched[a.Key] = a, s.s.Pod
		s.pending = append(s.pending, a)
		if a.Kind == podstate.BeginStop || a.Kind == podstate.KillContainer {
			s.s.Stops[a.ID] = s.s.Stops[a.ID].Ask(a, s.s.Now)
		}
	}
	for _, a := range slices.Clone(s.pending) {
		if s.r.Intn(3) > 0 || !s.noisy {
			s.finish(a.Key, true, s.noisy && s.r.Intn(8) == 0)
		}
	}
	if s.noisy {
		s.s.Now = s.s.Now.Add(time.Duration(s.r.Intn(4000)) * time.Millisecond)
		s.expire()
		s.disturb()
		s.more()
	}
}

// finish ends an action that runs, with or without its effect.
func (s *storm) finish(key podstate.Key, effect, fails bool) {
	i := slices.IndexFunc(s.pending, func(a podstate.Action) bool { return a.Key == key })
	if i < 0 {
		return
	}
	a := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	delete(s.s.InFlight, key)
	if stop, ok := s.s.Stops[a.ID]; ok && a.Kind == podstate.BeginStop {
		stop.PreStopDone = true
		s.s.Stops[a.ID] = stop
	}
	if fails {
		s.s.Failures[key] = Failure{Reason: "Error", Message: "storm", Count: s.s.Failures[key].Count + 1, At: s.s.Now}
		s.s.ResizeFailed(a)
	}
	s.lost = fails
	if !effect || fails && s.r.Intn(2) == 0 {
		return
	}
	failure, failed := s.s.Failures[key]
	s.carryOut(a)
	if fails {
		delete(s.s.StoppedSandboxes, a.ID)
	}
	if fails && failed {
		s.s.Failures[key] = failure // the effect is there, and its answer was lost
	}
}

// carryOut does what the executor does, which asks the action what it makes of what it
// finds.
func (s *storm) carryOut(a podstate.Action) {
	switch a.Kind {
	case podstate.StartContainer:
		halfMade, settled := a.Finds(s.s.Observed)
		for _, id := range halfMade {
			s.drop(id)
		}
		if sb := s.s.Observed.Sandbox(a.SandboxID); settled || sb == nil || !sb.Ready {
			return // a start whose sandbox went down is none
		}
	case podstate.MakeSandbox:
		if a.Made(s.s.Observed) {
			return
		}
	case podstate.KillContainer:
		if c := s.container(a.ID); c == nil || !c.Live() {
			return
		}
	case podstate.StopSandbox:
		for i := range s.s.Observed.Containers {
			if c := &s.s.Observed.Containers[i]; c.SandboxID == a.ID && c.Live() {
				s.end(c, 137)
			}
		}
	}
	s.do(a)
	if a.Kind == podstate.StartContainer && s.lost && s.r.Intn(2) == 0 {
		s.cutShort(a)
	}
}

// cutShort leaves what a start has made unstarted.
func (s *storm) cutShort(a podstate.Action) {
	if c := s.newest(a.Container); c != nil && a.Made(s.s.Observed) && c.SandboxID == a.SandboxID {
		c.State, c.StartedAt = podstate.StateCreated, time.Time{}
		delete(s.ends, c.ID)
	}
}

// forget is the agent's restart; what the apiserver has may be old, or nothing.
func (s *storm) forget() {
	s.pending = nil
	s.s.InFlight, s.s.Failures, s.s.Stops = map[podstate.Key]podstate.Action{}, map[podstate.Key]Failure{}, map[string]ContainerStop{}
	s.s.StoppedSandboxes = map[string]bool{}
	s.s.Images, s.s.Volumes, s.s.Probes, s.s.Cleaned, s.s.EndSince = map[string]Image{}, Volumes{}, map[podstate.ProbeKey]podstate.ProbeResult{}, Cleaned{}, time.Time{}
	if s.s.Static {
		s.s.Reported = v1.PodStatus{}
	}
}

// disturb changes something behind the agent's back now and then.
func (s *storm) disturb() {
	all := s.s.Observed.Containers
	switch s.r.Intn(25) {
	case 0:
		s.restart()
	case 1:
		if len(all) > 0 {
			s.drop(all[s.r.Intn(len(all))].ID)
		}
	case 2:
		if len(all) > 0 {
			if c := &all[s.r.Intn(len(all))]; c.Live() {
				s.end(c, []int32{1, 137, exitForAll}[s.r.Intn(3)])
			}
		}
	case 3:
		for i := range s.s.Observed.Sandboxes {
			s.s.Observed.Sandboxes[i].Ready = false
		}
		for i := range all {
			if all[i].Live() {
				s.end(&all[i], 137)
			}
		}
	case 4:
		if len(all) > 0 {
			c := all[s.r.Intn(len(all))]
			s.s.Probes[podstate.ProbeKey{Container: c.Name, Type: podstate.Liveness}] = podstate.ProbeResult{ContainerID: c.ID}
		}
	case 5:
		s.edit(func(pod *v1.Pod) { pod.Spec.Containers[s.r.Intn(2)].Image = fmt.Sprint("img", s.r.Intn(3)) })
	case 6:
		if len(all) > 0 && s.r.Intn(3) == 0 {
			if c := &all[s.r.Intn(len(all))]; c.State == podstate.StateRunning {
				c.State = podstate.StateUnknown
			}
		}
	}
}

// edit gives the pod another spec.
func (s *storm) edit(change func(*v1.Pod)) {
	if s.s.Desired == nil {
		s.s.Pod = s.s.Pod.DeepCopy()
		change(s.s.Pod)
		return
	}
	pod := s.s.Desired.DeepCopy()
	change(pod)
	s.s.Want(pod)
}

// calm lets what runs end and the world settle.
func (s *storm) calm() {
	s.noisy = false
	s.exitsOf(func() int32 { return 0 })
	for range 50 {
		s.turn()
		if len(s.pending) == 0 && len(s.s.InFlight) == 0 {
			break
		}
	}
	for i := range s.s.Observed.Containers { // what still has exits to come ends
		if c := &s.s.Observed.Containers[i]; c.State == podstate.StateRunning && len(s.exits[c.Name]) > 0 {
			s.ends[c.ID] = s.s.Now.Add(time.Second)
		}
	}
	s.settle(6 * time.Hour)
}

// written is all of a state, in an order of its own.
func written(s State) string {
	return dump.Pretty(s.Pod) + dump.Pretty(s.Observed) + dump.Pretty(s.Reported) + fmt.Sprint(s.Images, s.Probes, s.InFlight, s.Failures, s.Stops, s.Cleaned)
}

// storms is how many seeds are tried: POLYLET_SIM_SEEDS when it asks for more. With the
// race detector there are few, for no goroutine is started: `make sim` has all.
func storms() int {
	n, err := strconv.Atoi(os.Getenv("POLYLET_SIM_SEEDS"))
	if err != nil {
		n = 0
	}
	return raced.Share(max(n, 200))
}

func TestWhateverHappenedThePlanConvergesAndThenThereIsNothingToDo(t *testing.T) {
	for seed := range storms() {
		s := newStorm(int64(seed))
		for range 60 {
			s.turn()
		}
		s.calm()
		before := written(s.s)
		out, again := Plan(s.s), Plan(s.s)
		switch {
		case len(out.Actions) != 0 || !out.Wake.IsZero() && !out.Wake.After(s.s.Now):
			t.Fatalf("seed %d: settled, but still %+v, wake %v\nlog %v", seed, out.Actions, out.Wake, s.log)
		case !reflect.DeepEqual(out, again):
			t.Fatalf("seed %d: the same state gives two plans:\n%+v\n%+v", seed, out, again)
		case s.refused != "":
			t.Fatalf("seed %d: the apiserver would refuse the status: %s", seed, s.refused)
		case written(s.s) != before:
			t.Fatalf("seed %d: the planner changed the state that it was given, from\n%s\nto\n%s", seed, before, written(s.s))
		}
		if why := s.wrong(); why != "" {
			t.Fatalf("seed %d: %s\nphase %s, containers %+v\nlog %v", seed, why, out.Status.Phase, s.s.Observed.Containers, s.log)
		}
		s.s.Removed = true
		s.settle(time.Hour)
		if !s.out.Done || len(s.s.Observed.Containers)+len(s.s.Observed.Sandboxes) != 0 {
			t.Fatalf("seed %d: left over %+v", seed, s.s.Observed)
		}
	}
}

// wrong says what is not as it must be in a pod that has settled.
func (s *storm) wrong() string {
	st, p := s.out.Status, newPlanner(&s.s)
	p.findRound()
	switch st.Phase {
	case v1.PodRunning:
		for _, v := range p.views {
			switch {
			case v.class == regular && (v.here() == nil || v.here().State != podstate.StateRunning) && (v.newest() == nil || p.restarts(v, v.newest())):
				return "container " + v.spec.Name + " does not run"
			case v.class == sidecar && (v.here() == nil || v.here().State != podstate.StateRunning):
				return "sidecar " + v.spec.Name + " does not run"
			case v.class != ephemeral && v.here().Live() && v.here().Round != p.round:
				return "container " + v.spec.Name + " is of an earlier round"
			}
		}
		if s.s.Static && len(st.ContainerStatuses) == 0 {
			return "no status"
		}
		return ""
	case v1.PodSucceeded, v1.PodFailed:
		for i := range s.s.Observed.Containers {
			if s.s.Observed.Containers[i].Live() {
				return "a container of a pod that has ended runs"
			}
		}
		return ""
	default:
		return "it neither runs nor has ended"
	}
}

func TestOfWhateverAPodIsHeldUpByItSaysThatItWaits(t *testing.T) {
	for seed := range storms() {
		s := newStorm(int64(seed))
		for range 90 {
			if !s.s.Static && s.s.Pod.DeletionTimestamp == nil && s.r.Intn(80) == 0 {
				s.s.Pod = s.s.Pod.DeepCopy()
				at, grace := metav1.NewTime(s.s.Now.Add(30*time.Second)), int64(30)
				s.s.Pod.DeletionTimestamp, s.s.Pod.DeletionGracePeriodSeconds = &at, &grace
			}
			s.turn()
			if why := s.silent(); why != "" {
				t.Fatalf("seed %d: %s, and says of nothing that it waits for it\nin flight %v, failures %v\nconditions %+v\ncontainers %+v\nlog %v",
					seed, why, s.s.InFlight, s.s.Failures, s.out.Status.Conditions, s.s.Observed.Containers, s.log)
			}
		}
	}
}

// silent says what of the pod is not as it is to be though it waits for nothing; empty
// when it is, or says so. What has ended for good is not ready, and waits for nothing.
func (s *storm) silent() string {
	out := Plan(s.s)
	unready := func(c v1.ContainerStatus) bool {
		i := slices.IndexFunc(s.s.Pod.Spec.InitContainers, func(init v1.Container) bool { return init.Name == c.Name })
		return !c.Ready && c.State.Terminated == nil && (i < 0 || podutil.Sidecar(&s.s.Pod.Spec.InitContainers[i]))
	}
	switch {
	case len(out.Waits) > 0:
	case !out.Terminating && slices.ContainsFunc(slices.Concat(out.Status.ContainerStatuses, out.Status.InitContainerStatuses), unready):
		return "a container is not ready"
	case out.Terminating && !out.Stopped:
		return "it is to end and has not"
	case out.Terminating && s.s.Pod.DeletionTimestamp != nil && !s.s.Static && !s.s.Cleaned.API:
		return "its object is to go and has not"
	}
	return ""
}
