package plan

import (
	"cmp"
	"fmt"
	"math/rand"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// gale is a storm with all that may come together: the node ends the pod, its object is
// deleted, its containers are to have other resources and are restarted for that or not,
// startup probes answer late or with no, the clock is set, room is asked for. The agent
// restarts with what it has kept on the disk, and with nothing else.
type gale struct {
	*storm
	// granted is what was decided of the pod's resources, asked for by generation, and
	// wait why it is not what the spec asks for.
	granted    resize.Allocation
	generation int64
	wait       *podstate.ResizePending
	// disk is what is kept of that; nil for nothing. made is what sandboxes were made for.
	disk *Former
	made map[string]resize.Allocation
	// stop is why the node ends the pod, kept: also after a restart; late: it had come to
	// its end before.
	stop       *podstate.Stop
	kept, late bool
	// broken is the first promise that was.
	broken string
}

func newGale(seed int64) *gale {
	r := rand.New(rand.NewSource(seed))
	pod := anyPod(r)
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Resources = anySize(r)
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				if r.Intn(3) == 0 {
					list[i].ResizePolicy = append(list[i].ResizePolicy, v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: v1.RestartContainer})
				}
			}
			if podutil.Sidecar(&list[i]) || i < len(pod.Spec.Containers) && list[i].Name == pod.Spec.Containers[i].Name {
				if r.Intn(3) == 0 {
					list[i].StartupProbe = &v1.Probe{}
				}
			}
		}
	}
	g := &gale{storm: stormOf(pod, r), made: map[string]resize.Allocation{}}
	g.s.Node.Quotas = resources.Quotas{On: true}
	g.s.Static = r.Intn(5) == 0
	g.s.Want(pod)
	g.granted = resize.Of(pod)
	g.s.Keep(g.granted)
	g.exitsOf(func() int32 { return []int32{0, 0, 1, exitForAll}[r.Intn(4)] })
	g.world.resize, g.storm.before, g.storm.restart, g.storm.more = g.carryOut, g.decided, g.again, g.change
	return g
}

func anySize(r *rand.Rand) v1.ResourceRequirements {
	return amounts("cpu", fmt.Sprintf("%d", 1+r.Intn(3)), "memory", fmt.Sprintf("%dMi", 100*(1+r.Intn(3))))
}

// decided is what the worker tells the planner before each plan.
func (g *gale) decided() {
	if !g.kept {
		g.late = g.over() // what is not kept is not acted upon
	}
	g.s.Begin(g.s.Now)
	g.s.Granted(g.granted, g.generation, g.wait, g.s.Now)
}

// carryOut does what has to do with resizes, and a start with the pod as it was when the
// start began.
func (g *gale) carryOut(a podstate.Action) bool {
	switch a.Kind {
	case podstate.KeepStop:
		g.kept, g.late = true, g.late || g.over()
		return false
	case podstate.MakeSandbox:
		g.made[fmt.Sprintf("s%d", g.next+1)] = resize.Of(g.launched[a.Key])
		return false
	case podstate.StartContainer:
		now := g.s.Pod
		g.s.Pod = g.launched[a.Key]
		g.start(a)
		g.s.Pod = now
	case podstate.KeepAllocation:
		g.disk = &Former{Had: *a.Allocation, Stored: true, Generation: a.Generation, At: g.s.Now}
	case podstate.ResizeContainer:
		if c := g.container(a.ID); c.Live() {
			k := a.Kernel
			c.Kernel = &k
		}
	case podstate.RaiseCgroup, podstate.FitCgroup:
	default:
		return false
	}
	if !g.lost {
		g.s.Ended(Outcome{Action: a, AllocatedAt: g.s.Now})
	}
	return true
}

// again is the agent's restart.
func (g *gale) again() {
	g.pending = nil
	old := g.s
	g.s = NewState(old.UID)
	g.s.Static, g.s.Admission, g.s.Node, g.s.Observed, g.s.Now = old.Static, old.Admission, old.Node, old.Observed, old.Now
	g.s.Want(old.Desired)
	if !old.Static {
		g.s.Reported = old.Reported
	}
	f := Former{Had: resize.Of(old.Desired)}
	shown := old.Desired.DeepCopy()
	shown.Status = g.s.Reported
	if told, ok := resize.Shown(shown); ok {
		f.Had = told
	}
	if len(old.Observed.Sandboxes) > 0 {
		made := g.made[old.Observed.Sandboxes[0].ID]
		f.Had, f.Made = made, &made
	}
	if g.disk != nil {
		f.Had, f.Stored, f.Generation, f.At = g.disk.Had, true, g.disk.Generation, g.disk.At
	}
	g.s.Resume(f)
	g.granted, g.generation, g.wait = f.Had, f.Generation, nil
	if want := resize.Of(old.Desired); !want.Equal(f.Had) {
		g.wait = &podstate.ResizePending{Reason: v1.PodReasonDeferred, Generation: old.Desired.Generation}
	}
	if g.stop != nil && g.kept {
		g.s.TakeStop(*g.stop, true, g.s.Now)
	} else {
		g.stop = nil
	}
}

// change is what others do to the pod, the node and its clock.
func (g *gale) change() {
	switch g.r.Intn(60) {
	case 0:
		g.set(time.Duration(g.r.Intn(7200)-3600) * time.Second)
	case 1, 2:
		if !g.s.Static {
			g.edit(func(pod *v1.Pod) {
				pod.Generation++
				pod.Spec.Containers[g.r.Intn(2)].Resources = anySize(g.r)
				if n := len(pod.Spec.InitContainers); n > 0 && g.r.Intn(2) == 0 {
					pod.Spec.InitContainers[g.r.Intn(n)].Resources = anySize(g.r)
				}
			})
			g.wait = &podstate.ResizePending{Reason: v1.PodReasonDeferred, Generation: g.s.Desired.Generation}
		}
	case 3, 4, 5:
		g.allocate()
	case 6:
		g.end()
	case 7:
		g.deletes()
	case 8, 9, 10, 11, 12, 13:
		g.answers(g.r.Intn(4) > 0)
	case 14:
		g.s.Reclaim = !g.s.Reclaim
	}
}

// allocate grants what the spec asks for.
func (g *gale) allocate() {
	g.granted, g.generation, g.wait = resize.Of(g.s.Desired), g.s.Desired.Generation, nil
}

func (g *gale) end() {
	if g.s.Static || g.r.Intn(3) > 0 {
		return
	}
	stop := podstate.Stop{Reason: "Evicted", Message: "now"}
	if g.r.Intn(2) == 0 {
		grace := int64(g.r.Intn(40))
		stop.GraceSeconds = &grace
	}
	if g.stop == nil {
		g.stop, g.kept, g.late = &stop, g.r.Intn(2) == 0, g.over()
	}
	g.s.TakeStop(stop, g.kept, g.s.Now)
}

// over says whether the pod has come to its end.
func (g *gale) over() bool {
	return podutil.TerminalPhase(g.s.Reported.Phase) || !g.s.EndSince.IsZero()
}

func (g *gale) deletes() {
	if g.s.Static || g.r.Intn(3) > 0 {
		return
	}
	g.edit(func(pod *v1.Pod) {
		at, grace := metav1.NewTime(g.s.Now), int64(g.r.Intn(40))
		if had := pod.DeletionGracePeriodSeconds; had != nil {
			grace = min(grace, *had)
		}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	})
}

// answers has the startup probes of what runs answer.
func (g *gale) answers(well bool) {
	for i := range g.s.Observed.Containers {
		if c := &g.s.Observed.Containers[i]; c.State == podstate.StateRunning {
			if spec, _ := podutil.Container(g.s.Pod, c.Name); spec != nil && spec.StartupProbe != nil {
				g.s.Probes[podstate.ProbeKey{Container: c.Name, Type: podstate.Startup}] = podstate.ProbeResult{ContainerID: c.ID, Success: well}
			}
		}
	}
}

// set sets the clock. What this process has noted of time goes on all the same.
func (g *gale) set(by time.Duration) {
	shift := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	s := &g.s
	for _, t := range []*time.Time{&s.Now, &s.EndSince, &s.DeletionSince, &s.Resize.AskAt, &s.Resize.Began} {
		shift(t)
	}
	for _, periods := range [][]Period{s.StopPeriods, s.Shortened} {
		for i := range periods {
			shift(&periods[i].Since)
		}
	}
	for id, stop := range s.Stops {
		shift(&stop.Began)
		shift(&stop.Until)
		s.Stops[id] = stop
	}
	for key, f := range s.Failures {
		shift(&f.At)
		s.Failures[key] = f
	}
	for name, v := range s.Volumes.Of {
		shift(&v.Failure.At)
		s.Volumes.Of[name] = v
	}
	for key, a := range s.InFlight {
		shift(&a.Until)
		s.InFlight[key] = a
	}
	for id, at := range g.ends {
		g.ends[id] = at.Add(by)
	}
}

// turn is a storm's, and looks whether a pod that ends begins anything.
func (g *gale) turn() {
	g.storm.turn()
	for _, a := range g.out.Actions {
		switch a.Kind {
		case podstate.MakeSandbox, podstate.StartContainer, podstate.PullImage, podstate.SetupVolumes, podstate.RaiseCgroup, podstate.ResizeContainer, podstate.FitCgroup:
			if g.out.Terminating {
				g.broken = cmp.Or(g.broken, fmt.Sprintf("a pod that ends is to %s", a.Kind))
			}
		}
	}
}

// calm lets all come to rest: what waits is allocated, and probes answer.
func (g *gale) calm() {
	g.noisy, g.s.Reclaim = false, false
	g.exitsOf(func() int32 { return 0 })
	g.allocate()
	for i := range g.s.Observed.Containers { // what still has exits to come ends
		if c := &g.s.Observed.Containers[i]; c.State == podstate.StateRunning && len(g.exits[c.Name]) > 0 {
			g.ends[c.ID] = g.s.Now.Add(time.Second)
		}
	}
	until := g.s.Now.Add(12 * time.Hour)
	for range 5000 {
		g.turn()
		g.answers(true)
		g.decided()
		out := Plan(g.s)
		if len(out.Actions) > 0 || len(g.s.InFlight) > 0 {
			continue
		}
		g.out, g.s.Reported = out, out.Status
		next := out.Wake
		for _, at := range g.ends {
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if next.IsZero() || next.After(until) {
			return
		}
		if next.After(g.s.Now) {
			g.s.Now = next
		}
		g.expire()
	}
	g.broken = cmp.Or(g.broken, "it does not come to rest")
}

// amiss says what is not as it must be when all has come to rest.
func (g *gale) amiss() string {
	st := g.out.Status
	switch {
	case g.broken != "" || g.refused != "":
		return cmp.Or(g.broken, "the apiserver would refuse the status: "+g.refused)
	case g.s.Desired.DeletionTimestamp != nil:
		if !g.out.Done {
			return "its object was deleted, and it is still there"
		}
		return ""
	case g.stop != nil && !g.late && (st.Phase != v1.PodFailed || st.Reason != g.stop.Reason):
		return fmt.Sprintf("the node has ended it, and it is %s, %q", st.Phase, st.Reason)
	case st.Phase != v1.PodRunning:
	case g.s.Resize.Unfinished || g.s.Resize.Next != nil || outOfStep(g.s):
		return "its resize is not in effect"
	}
	return g.wrong()
}

func TestWhateverComesTogetherThePlanConvergesToWhatWasAskedFor(t *testing.T) {
	for seed := range storms() {
		g := newGale(int64(seed))
		for range 80 {
			g.turn()
		}
		g.calm()
		if why := g.amiss(); why != "" {
			t.Fatalf("seed %d: %s\nphase %s, actions %+v, wake %v, now %v\nresize %+v\nsandboxes %+v\ncontainers %+v\nlog %v",
				seed, why, g.out.Status.Phase, g.out.Actions, g.out.Wake, g.s.Now, g.s.Resize, g.s.Observed.Sandboxes, g.s.Observed.Containers, g.log)
		}
		g.s.Removed = true
		if g.settle(time.Hour); !g.out.Done || len(g.s.Observed.Containers)+len(g.s.Observed.Sandboxes) != 0 {
			t.Fatalf("seed %d: left over %+v", seed, g.s.Observed)
		}
	}
}
