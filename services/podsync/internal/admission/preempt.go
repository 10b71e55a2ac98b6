package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Victim is a pod that must make room.
type Victim struct {
	Pod *v1.Pod
	// Signal is the resource for which it goes.
	Signal v1.ResourceName
	// Stop is how it ends.
	Stop podstate.Stop
}

// preempted is how a victim ends: as its processes do.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
func preempted() podstate.Stop {
	return podstate.Stop{
		Reason: "Preempting", Message: "Preempted in order to admit critical pod", ByContainers: true,
		Condition: &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
		},
	}
}

// stubborn is how much longer than its grace period a pod may take to end, at least,
// until nobody counts on what it has.
const stubborn = 30 * time.Second

// endless says whether a pod that has been stopped for so long, yet uses what it did,
// is not expected to end any more: its runtime does not answer, or the kernel does
// not kill its processes.
func endless(pod *v1.Pod, stopped time.Duration) bool {
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		grace = *g
	}
	allowed := podutil.Seconds(grace)
	return stopped >= allowed+max(allowed/2, stubborn)
}

// preempt finds room for a critical pod that only lacks resources. A victim that
// does not end is not waited for: others go, or the pod is rejected.
func preempt(in Input) (Answer, bool) {
	var staying, candidates, going, stuck []*v1.Pod
	for _, pod := range in.Active {
		stopped, leaving := in.Leaving[pod.UID]
		switch {
		case !leaving:
			staying, candidates = append(staying, pod), append(candidates, pod)
		case endless(pod, stopped):
			staying, stuck = append(staying, pod), append(stuck, pod)
		default:
			going = append(going, pod)
		}
	}
	short := shortages(in, staying)
	if len(short) == 0 {
		return notYet("Preempting", "the pod waits for others to end, which are being stopped, and takes their place: %s", names(going))
	}
	hint := ""
	if len(stuck) > 0 {
		hint = fmt.Sprintf("; stopped long ago and not ended: %s", names(stuck))
	}
	victims, err := choose(in.Pod, in.Static, candidates, needsOf(short))
	if err != nil {
		return rejected(reasonUnexpected, "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: %v%s", err, hint)
	}
	answer, objects := notYet("Preempting", "the pod waits for %d others to end, which make room for it: %s%s", len(victims), short[0].text(), hint)
	for _, pod := range victims {
		answer.Preempt = append(answer.Preempt, Victim{Pod: pod, Signal: short[0].Name, Stop: preempted()})
	}
	return answer, objects
}

// mostNamed is how many pods a message names.
const mostNamed = 5

// names names pods in their order by name, the first of them if they are many.
func names(pods []*v1.Pod) string {
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(out)
	if more := len(out) - mostNamed; more > 0 {
		out = append(out[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// need is how much of a resource must come free.
type need struct {
	name   v1.ResourceName
	amount int64
}

type needs []need

func needsOf(short []shortage) needs {
	var out needs
	for _, s := range short {
		out = append(out, need{s.Name, s.missing()})
	}
	return out
}

// without is what is left to be freed when these pods go.
func (n needs) without(pods ...*v1.Pod) needs {
	var out needs
	for _, one := range n {
		for _, pod := range pods {
			one.amount -= requests(pod)[one.name]
		}
		if one.amount > 0 {
			out = append(out, one)
		}
	}
	return out
}

// distance is how far a pod is from covering the needs: 0 covers them all.
func (n needs) distance(pod *v1.Pod) float64 {
	var sum float64
	has := requests(pod)
	for _, one := range n {
		if left := one.amount - has[one.name]; left > 0 {
			part := float64(left) / float64(one.amount)
			sum += part * part
		}
	}
	return sum
}

func (n needs) String() string {
	text := "["
	for _, one := range n {
		text += fmt.Sprintf("(res: %v, q: %v), ", one.name, one.amount)
	}
	return text + "]"
}

// choose picks the pods to stop, cheapest first: a class of service is touched
// only when all of the classes below it together are not enough.
func choose(critical *v1.Pod, static bool, pods []*v1.Pod, n needs) ([]*v1.Pod, error) {
	classes := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, pod := range pods {
		if pod.UID != critical.UID && yields(pod, critical, static) {
			class := podutil.QOS(pod)
			classes[class] = append(classes[class], pod)
			all = append(all, pod)
		}
	}
	if left := n.without(all...); len(left) > 0 {
		return nil, fmt.Errorf("no set of running pods found to reclaim resources: %v", left)
	}
	effort, burst := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable]
	guaranteed := nearest(classes[v1.PodQOSGuaranteed], n.without(effort...).without(burst...))
	burst = nearest(burst, n.without(effort...).without(guaranteed...))
	effort = nearest(effort, n.without(burst...).without(guaranteed...))
	return slices.Concat(effort, burst, guaranteed), nil
}

// yields says whether a pod may be stopped for another.
func yields(pod, critical *v1.Pod, static bool) bool {
	if (static || podutil.Critical(critical)) && !podutil.Critical(pod) {
		return true
	}
	return pod.Spec.Priority != nil && critical.Spec.Priority != nil && *critical.Spec.Priority > *pod.Spec.Priority
}

// nearest takes pods until nothing is needed any more: each time the one that
// leaves least to be freed and, of equals, the one that asks for less.
func nearest(pods []*v1.Pod, n needs) []*v1.Pod {
	pods = slices.Clone(pods)
	var out []*v1.Pod
	for len(n) > 0 && len(pods) > 0 {
		best := 0
		for i := 1; i < len(pods); i++ {
			d, least := n.distance(pods[i]), n.distance(pods[best])
			if d < least || d == least && smaller(pods[i], pods[best]) {
				best = i
			}
		}
		out = append(out, pods[best])
		n = n.without(pods[best])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// smaller compares what two pods ask for: memory first, then cpu.
func smaller(a, b *v1.Pod) bool {
	x, y := requests(a), requests(b)
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x[name] != y[name] {
			return x[name] < y[name]
		}
	}
	return false
}
