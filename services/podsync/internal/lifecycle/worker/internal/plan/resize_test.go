package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

func amounts(pairs ...string) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for i := 0; i < len(pairs); i += 2 {
		name, q := v1.ResourceName(pairs[i]), resource.MustParse(pairs[i+1])
		r.Requests[name], r.Limits[name] = q, q
	}
	return r
}

// sized is a pod whose containers all have these amounts and this policy for memory.
func sized(r v1.ResourceRequirements, policy v1.ResourceResizeRestartPolicy, names ...string) *v1.Pod {
	pod := testPod(v1.RestartPolicyOnFailure, names...)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Resources = *r.DeepCopy()
		c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: policy}}
	}
	return pod
}

// resizer carries resizes out on a world's plain data.
type resizer struct {
	*world
}

func newResizer(pod *v1.Pod) *resizer {
	r := &resizer{world: newWorld(pod)}
	r.s.Node.Quotas = resources.Quotas{On: true}
	r.resize = r.do
	r.settle(time.Minute)
	r.log = nil
	return r
}

func (r *resizer) do(a podstate.Action) bool {
	switch a.Kind {
	case podstate.KeepAllocation:
		r.s.Desired, r.s.Resize.Next = r.s.Pod, nil
	case podstate.ResizeContainer:
		k := a.Kernel
		r.container(a.ID).Kernel = &k
	case podstate.RaiseCgroup, podstate.FitCgroup:
	default:
		return false
	}
	r.s.ResizeActed(a, r.s.Now)
	return true
}

// ask allocates what another spec asks for.
func (r *resizer) ask(pod *v1.Pod) {
	next := resize.Of(pod)
	r.s.Now = r.s.Now.Add(time.Minute)
	r.s.Pod = r.s.Pod.DeepCopy()
	r.s.Pod.Generation++
	r.s.Resize.Next, r.s.Resize.NextGeneration = &next, r.s.Pod.Generation
}

func conditionOf(st v1.PodStatus, t v1.PodConditionType) v1.PodCondition {
	for _, c := range st.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

func TestAResizeIsKeptThenTheCgroupGrowsThenContainersThenItShrinks(t *testing.T) {
	r := newResizer(sized(amounts("cpu", "1", "memory", "100Mi"), v1.NotRequired, "grows", "shrinks"))
	next := sized(amounts("cpu", "2", "memory", "200Mi"), v1.NotRequired, "grows", "shrinks")
	next.Spec.Containers[1].Resources = amounts("cpu", "1", "memory", "50Mi")
	r.ask(next)
	first := Plan(r.s)
	if c := conditionOf(first.Status, v1.PodResizeInProgress); c.Status != v1.ConditionTrue || c.ObservedGeneration != 2 {
		t.Errorf("before it is kept the condition is %+v", c)
	}
	if got := first.Status.ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" {
		t.Errorf("before it is kept %s is shown as allocated", got)
	}
	var checked []podstate.MemoryLimit
	r.fail = func(a podstate.Action) *Failure {
		checked = append(checked, a.Limits...)
		return nil
	}
	r.settle(time.Minute)
	want := "keep allocation ,raise cgroup ,resize container shrinks,resize container grows,fit cgroup "
	if got := strings.Join(r.log, ","); got != want {
		t.Errorf("done: %s\nwant: %s", got, want)
	}
	if len(checked) != 1 || checked[0].Container != "shrinks" || checked[0].ID != r.newest("shrinks").ID || checked[0].Bytes != 50<<20 {
		t.Errorf("checked before anything was changed: %+v", checked)
	}
	st := r.out.Status
	if condition(st, v1.PodResizeInProgress) != "absent" || st.ContainerStatuses[0].AllocatedResources.Cpu().String() != "2" ||
		st.ContainerStatuses[0].Resources.Limits.Memory().String() != "200Mi" || st.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("status %+v", st)
	}
	if again := Plan(r.s); len(again.Actions) != 0 {
		t.Errorf("a finished resize still has %v", again.Actions)
	}
}

func TestAContainerThatAsksForARestartGetsOneAndNoBackOff(t *testing.T) {
	for name, tc := range map[string]struct {
		to       v1.ResourceRequirements
		restarts int32
	}{
		"memory":                   {amounts("cpu", "1", "memory", "200Mi"), 1},
		"cpu, which asks for none": {amounts("cpu", "2", "memory", "100Mi"), 0},
		"both":                     {amounts("cpu", "2", "memory", "50Mi"), 1},
	} {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure} {
			pod := sized(amounts("cpu", "1", "memory", "100Mi"), v1.RestartContainer, "a")
			pod.Spec.RestartPolicy = policy
			r := newResizer(pod)
			r.killCode = 0 // it ends well when it is asked to
			r.ask(sized(tc.to, v1.RestartContainer, "a"))
			began := r.s.Now
			for r.step() {
				// The apiserver takes no such container back once it was shown as ended.
				if r.out.Status.ContainerStatuses[0].State.Terminated != nil {
					t.Errorf("%s with %s: it is shown as ended", name, policy)
				}
			}
			r.settle(time.Second)
			c := r.out.Status.ContainerStatuses[0]
			if c.RestartCount != tc.restarts || c.State.Running == nil || condition(r.out.Status, v1.PodResizeInProgress) != "absent" {
				t.Errorf("%s with %s: %d restarts, state %+v, %+v", name, policy, c.RestartCount, c.State, r.log)
			}
			if r.s.Now.Sub(began) > time.Second {
				t.Errorf("%s: it waited", name)
			}
			if got := c.Resources.Limits; got.Memory().Cmp(*tc.to.Limits.Memory()) != 0 || got.Cpu().Cmp(*tc.to.Limits.Cpu()) != 0 {
				t.Errorf("%s: it has %v", name, got)
			}
		}
	}
}

// TestAResizeThatTheRuntimeRefusesKeepsNoContainerDown: a plugin of it may say no for ever.
func TestAResizeThatTheRuntimeRefusesKeepsNoContainerDown(t *testing.T) {
	r := newResizer(sized(amounts("cpu", "1", "memory", "100Mi"), v1.NotRequired, "a"))
	r.fail = func(a podstate.Action) *Failure {
		if a.Kind != podstate.RaiseCgroup {
			return nil
		}
		return &Failure{Reason: "ResizeError", Message: "refused"}
	}
	r.ask(sized(amounts("cpu", "2", "memory", "100Mi"), v1.NotRequired, "a"))
	r.settle(time.Minute)
	r.end(r.newest("a"), 1)
	r.settle(time.Minute)
	if c := r.newest("a"); c.State != podstate.StateRunning || c.RestartCount != 1 {
		t.Errorf("it is %+v; done: %q", c, r.log)
	}
	if c := conditionOf(r.out.Status, v1.PodResizeInProgress); c.Message != "refused" {
		t.Errorf("the resize is shown as %+v", c)
	}
}

// In the cgroup of before it could be killed for what it was given.
func TestWhatStartsWithMoreWaitsForTheLargerCgroup(t *testing.T) {
	r := newResizer(sized(amounts("cpu", "1", "memory", "100Mi"), v1.NotRequired, "a"))
	r.ask(sized(amounts("cpu", "1", "memory", "200Mi"), v1.NotRequired, "a"))
	for r.step(); !r.s.Resize.Unfinished; r.step() { // until it is kept
	}
	key := podstate.Key{Kind: podstate.RaiseCgroup}
	r.s.InFlight[key] = podstate.Action{Key: key, Generation: r.s.Resize.Generation}
	r.end(r.newest("a"), 1)
	r.settle(time.Minute)
	if c := r.newest("a"); c.RestartCount != 0 {
		t.Errorf("while the cgroup grows it starts: %+v", c)
	}
	delete(r.s.InFlight, key)
	r.settle(time.Minute)
	if c := r.newest("a"); c.RestartCount != 1 || c.Kernel.Memory != 200<<20 {
		t.Errorf("then it is %+v", c)
	}
}

func TestAContainerThatHadEndedBeforeIsNotStartedByAResize(t *testing.T) {
	pod := sized(amounts("memory", "100Mi"), v1.RestartContainer, "done", "runs")
	r := &resizer{world: newWorld(pod)}
	r.resize = r.do
	r.exits["done"] = []int32{0}
	r.settle(time.Minute)
	r.ask(sized(amounts("memory", "200Mi"), v1.RestartContainer, "done", "runs"))
	r.settle(time.Minute)
	if st := r.out.Status.ContainerStatuses; st[0].RestartCount != 0 || st[1].RestartCount != 1 {
		t.Errorf("restarts: %d of the one that was done, %d of the other", st[0].RestartCount, st[1].RestartCount)
	}
}

func TestAContainerThatEndsByItselfBeforeItIsRestartedForAResizeHasEnded(t *testing.T) {
	for name, code := range map[string]int32{"its work is done": 0, "it has failed": 1} {
		r := newResizer(sized(amounts("memory", "100Mi"), v1.RestartContainer, "a", "b"))
		r.fail = func(a podstate.Action) *Failure {
			if first := r.newest("a"); a.Kind == podstate.RaiseCgroup && first.RestartCount == 0 && first.State == podstate.StateRunning {
				return &Failure{Reason: "ResizeError", Message: "not now"}
			}
			return nil
		}
		to := sized(amounts("memory", "200Mi"), v1.RestartContainer, "a", "b")
		r.ask(to)
		r.settle(10 * time.Second)
		r.end(r.newest("a"), code)
		r.settle(10 * time.Minute)
		if a, b := r.newest("a"), r.newest("b"); a.RestartCount != int(code) || b.RestartCount != 1 {
			t.Errorf("%s: it was restarted %d times, the other %d times: %v", name, a.RestartCount, b.RestartCount, r.log)
		}
	}
}

func TestACrashAtAnyPointOfAResizeLosesNothing(t *testing.T) {
	from, to := amounts("cpu", "1", "memory", "100Mi"), amounts("cpu", "2", "memory", "50Mi")
	for _, policy := range []v1.ResourceResizeRestartPolicy{v1.NotRequired, v1.RestartContainer} {
		for steps := range 8 {
			r := newResizer(sized(from, policy, "a", "b"))
			r.ask(sized(to, policy, "a", "b"))
			for range steps {
				r.step()
			}
			// What only the process knew is gone.
			z := r.s.Resize
			r.s.Resize = Resize{Next: z.Next, NextGeneration: z.NextGeneration, Generation: z.Generation, At: z.At, Unfinished: z.Unfinished}
			clear(r.s.Failures)
			r.settle(time.Minute)
			for _, c := range r.out.Status.ContainerStatuses {
				want := int32(0)
				if policy == v1.RestartContainer {
					want = 1
				}
				if c.RestartCount != want || c.Resources.Limits.Memory().String() != "50Mi" || c.Resources.Limits.Cpu().String() != "2" {
					t.Errorf("%s, crash after %d steps: %d restarts, %v", policy, steps, c.RestartCount, c.Resources)
				}
			}
			if condition(r.out.Status, v1.PodResizeInProgress) != "absent" {
				t.Errorf("%s, crash after %d steps: not finished", policy, steps)
			}
		}
	}
}

func TestAFailureIsShownAndTriedAgainAndARevertEndsIt(t *testing.T) {
	r := newResizer(sized(amounts("memory", "100Mi"), v1.NotRequired, "a"))
	r.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.ResizeContainer && a.Shrinks {
			return &Failure{Reason: "ResizeError", Message: "cannot decrease memory limits: too much in use"}
		}
		return nil
	}
	r.ask(sized(amounts("memory", "10Ki"), v1.NotRequired, "a"))
	r.settle(2 * time.Minute)
	c := conditionOf(r.out.Status, v1.PodResizeInProgress)
	if c.Reason != v1.PodReasonError || c.Message != "cannot decrease memory limits: too much in use" {
		t.Errorf("condition %+v", c)
	}
	if tries := r.count("resize container a"); tries < 3 || tries > 10 {
		t.Errorf("%d tries in two minutes", tries)
	}
	st := r.out.Status.ContainerStatuses[0]
	if st.AllocatedResources.Memory().String() != "10Ki" || st.Resources.Limits.Memory().String() != "100Mi" {
		t.Errorf("shown: allocated %v, in effect %v", st.AllocatedResources, st.Resources)
	}
	clear(r.s.Failures) // as for each new spec
	r.ask(sized(amounts("memory", "100Mi"), v1.NotRequired, "a"))
	r.settle(time.Minute)
	if condition(r.out.Status, v1.PodResizeInProgress) != "absent" || r.out.Status.ContainerStatuses[0].Resources.Limits.Memory().String() != "100Mi" {
		t.Errorf("after the revert: %+v", r.out.Status)
	}
}

func TestAResizeThatWaitsIsShownWithItsReason(t *testing.T) {
	r := newResizer(sized(amounts("cpu", "1"), v1.NotRequired, "a"))
	for _, reason := range []string{v1.PodReasonDeferred, v1.PodReasonInfeasible} {
		r.s.Resize.Pending = &podstate.ResizePending{Reason: reason, Message: "no", Generation: 7}
		out := Plan(r.s)
		c := conditionOf(out.Status, v1.PodResizePending)
		if c.Status != v1.ConditionTrue || c.Reason != reason || c.Message != "no" || c.ObservedGeneration != 7 || len(out.Actions) != 0 {
			t.Errorf("%s: %+v, actions %v", reason, c, out.Actions)
		}
	}
	now := r.s.Now
	r.s.Pod.DeletionTimestamp = nil
	r.s.Stop = &podstate.Stop{Reason: "Evicted"}
	r.s.Now = now.Add(time.Second)
	r.settle(time.Minute)
	if condition(r.out.Status, v1.PodResizePending) != "absent" {
		t.Error("a pod that has ended still waits for its resize")
	}
}

func TestWhatIsInEffectIsShownAsAllocatedThoughTheKernelIsCoarser(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kernel  resources.Kernel
		request string
		limit   string
	}{
		{"tiny amounts", resources.Kernel{Shares: 2, Quota: 1000, Period: 100_000}, "1m", "5m"},
		{"something else", resources.Kernel{Shares: 102, Quota: 20_000, Period: 100_000}, "100m", "200m"},
		{"no quota", resources.Kernel{Shares: 2}, "1m", "0"},
	} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m"), v1.ResourceMemory: resource.MustParse("1Mi")},
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("5m")},
		}
		r := newResizer(pod)
		r.newest("a").Kernel = &tc.kernel
		got := Plan(r.s).Status.ContainerStatuses[0].Resources
		if got.Requests.Cpu().String() != tc.request || got.Limits.Cpu().String() != tc.limit || got.Requests.Memory().String() != "1Mi" {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

func TestPodLevelResourcesAreShownAndLimitContainersThatHaveNone(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	level := amounts("cpu", "1", "memory", "100Mi")
	pod.Spec.Resources = &level
	r := newResizer(pod)
	if k := r.newest("a").Kernel; k.Memory != 100<<20 || k.Quota != 100_000 {
		t.Errorf("the container has %+v", k)
	}
	st := r.out.Status
	if st.Resources == nil || st.Resources.Limits.Memory().String() != "100Mi" || st.AllocatedResources.Cpu().String() != "1" || st.ContainerStatuses[0].Resources == nil {
		t.Errorf("shown: %+v, %+v", st.Resources, st.AllocatedResources)
	}
	next := pod.DeepCopy()
	more := amounts("cpu", "1", "memory", "200Mi")
	next.Spec.Resources = &more
	next.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	r.s.Pod.Spec.Containers[0].ResizePolicy = next.Spec.Containers[0].ResizePolicy
	r.ask(next)
	for !r.s.Resize.Raised {
		r.step()
	}
	if st := Plan(r.s).Status; st.Resources.Limits.Memory().String() != "100Mi" || st.AllocatedResources.Memory().String() != "200Mi" {
		t.Errorf("under way: %+v, %+v", st.Resources, st.AllocatedResources)
	}
	r.settle(time.Minute)
	if st := r.out.Status; st.Resources.Limits.Memory().String() != "200Mi" || st.ContainerStatuses[0].RestartCount != 1 || r.newest("a").Kernel.Memory != 200<<20 {
		t.Errorf("afterwards: %+v, %+v", st.Resources, st.ContainerStatuses)
	}
	r.s.Node.NoPodLevelResize = true
	if st := Plan(r.s).Status; st.Resources != nil || st.AllocatedResources != nil {
		t.Errorf("with the gate off: %+v, %+v", st.Resources, st.AllocatedResources)
	}
}

func TestARuntimeThatDoesNotSayWhatItAppliedIsToldOnce(t *testing.T) {
	r := newResizer(sized(amounts("cpu", "1"), v1.NotRequired, "a"))
	r.newest("a").Kernel = nil
	base := r.resize
	r.resize = func(a podstate.Action) bool {
		if a.Kind != podstate.ResizeContainer {
			return base(a)
		}
		r.s.Resize.Sent = map[string]resources.Kernel{a.ID: a.Kernel}
		return true
	}
	r.ask(sized(amounts("cpu", "2"), v1.NotRequired, "a"))
	r.settle(time.Minute)
	if n := r.count("resize container a"); n != 1 || condition(r.out.Status, v1.PodResizeInProgress) != "absent" {
		t.Errorf("told %d times, %v", n, r.log)
	}
}

func TestAResizeThatIsTakenBackWaitsForTheOneUnderWay(t *testing.T) {
	small, large := amounts("cpu", "1", "memory", "100Mi"), amounts("cpu", "1", "memory", "200Mi")
	next := func(r *resizer) (kinds []string) {
		for _, a := range Plan(r.s).Actions {
			kinds = append(kinds, string(a.Kind))
		}
		return kinds
	}
	under := func(kind podstate.Kind, r *resizer) {
		r.ask(sized(large, v1.NotRequired, "a"))
		for !slices.Contains(next(r), string(kind)) {
			r.step()
		}
		for _, a := range Plan(r.s).Actions {
			if a.Kind == kind {
				r.s.InFlight[a.Key] = a
			}
		}
		r.ask(sized(small, v1.NotRequired, "a"))
		r.step() // it is kept
	}
	r := newResizer(sized(small, v1.NotRequired, "a"))
	under(podstate.ResizeContainer, r)
	r.step() // the cgroup grows
	if got := next(r); len(got) > 0 || !r.s.Resize.Unfinished {
		t.Errorf("while the container is changed: %v", got)
	}
	key := podstate.Key{Kind: podstate.ResizeContainer, Object: r.newest("a").ID}
	delete(r.s.InFlight, key)
	r.s.Resize.Unsure = map[string]int64{key.Object: 200 << 20}
	if got := next(r); len(got) != 1 || got[0] != string(podstate.ResizeContainer) {
		t.Errorf("when that has failed, or its answer was lost: %v", got)
	}
	r.s.Resize.Unsure = nil
	if got := next(r); len(got) != 1 || got[0] != string(podstate.FitCgroup) {
		t.Errorf("when it has what it is to have: %v", got)
	}

	r = newResizer(sized(small, v1.NotRequired, "a"))
	under(podstate.FitCgroup, r)
	if got := next(r); len(got) > 0 {
		t.Errorf("while the cgroup is fitted to the size before: %v", got)
	}
	clear(r.s.InFlight)
	if got := next(r); len(got) != 1 || got[0] != string(podstate.RaiseCgroup) {
		t.Errorf("after that: %v", got)
	}
}

// A container whose page cache fills its limit uses all that it may: a change that is
// tried again is refused only when it takes memory away.
func TestAChangeThatFailedTakesMemoryAwayOnlyIfItMay(t *testing.T) {
	const mi = 1 << 20
	for name, tc := range map[string]struct {
		had, wanted string
		failed      int64
		shrinks     bool
	}{
		"more cpu is tried again":                     {"100Mi", "100Mi", 100 * mi, false},
		"more memory is tried again":                  {"100Mi", "200Mi", 200 * mi, false},
		"less memory is tried again":                  {"200Mi", "100Mi", 100 * mi, true},
		"less memory is taken back":                   {"200Mi", "200Mi", 100 * mi, false},
		"more memory is taken back":                   {"100Mi", "100Mi", 200 * mi, true},
		"no limit is taken back":                      {"100Mi", "100Mi", 0, true},
		"a limit, where there may be none by now":     {"100Mi", "200Mi", 0, true},
		"more, where there may be more still by now":  {"100Mi", "200Mi", 300 * mi, true},
		"more, where there may be less than before":   {"100Mi", "200Mi", 50 * mi, false},
		"less than before, more than what has failed": {"200Mi", "150Mi", 100 * mi, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResizer(sized(amounts("cpu", "1", "memory", tc.had), v1.NotRequired, "a"))
			c := r.newest("a")
			r.container(c.ID).Made = nil
			k := resources.ForContainer(r.s.Pod.Spec.Containers[0].Resources, r.s.Node.Quotas)
			r.container(c.ID).Kernel = &k
			r.s.Resize.Unsure = map[string]int64{c.ID: tc.failed}
			r.ask(sized(amounts("cpu", "2", "memory", tc.wanted), v1.NotRequired, "a"))
			for range 5 {
				for _, a := range Plan(r.s).Actions {
					if a.Kind == podstate.ResizeContainer {
						if a.Shrinks != tc.shrinks {
							t.Errorf("shrinks %v, want %v", a.Shrinks, tc.shrinks)
						}
						return
					}
				}
				r.step()
			}
			t.Error("the container is not changed")
		})
	}
}
