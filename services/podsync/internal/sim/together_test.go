package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// together is a pod of which all containers are restarted when one ends with 42.
const together = "all restart together"

func allTogether(m *maker) {
	m.policy([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever}[m.rng.IntN(2)], runs)
	m.before(fakecri.Sequence(m.exit(0)))
	own := v1.ContainerRestartPolicyNever
	c := m.main(fakecri.Sequence(fakecri.Run{For: m.short() + m.short(), Code: 42}, fakecri.Run{For: -1}))
	c.RestartPolicy = &own
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	m.main(m.forever())
}

// newImageOfOne is a scenario of a pod of two containers, of which the first gets
// another image; the code with which it ends for that restarts all, were it its own.
func newImageOfOne() func(int64) *scenario {
	return with(changed(only("two", 0), func(s *subject) {
		const code = 143
		own, c := v1.ContainerRestartPolicyAlways, &s.pod.Spec.Containers[0]
		c.RestartPolicy = &own
		c.RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
		}}
		s.scripts[c.Name] = fakecri.Script{Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{Code: code}}
	}), 10*time.Second, "change the image of p0", func(w *world) { w.changeImage(w.scenario.subjects[0]) })
}

// stopsAll stops all other containers, too, when one is stopped.
func stopsAll(w *world, req any) {
	for _, c := range w.rt.Snapshot().Containers {
		if c.ID != req.(*runtimeapi.StopContainerRequest).GetContainerId() {
			_, err := w.rt.Runtime().StopContainer(context.Background(), &runtimeapi.StopContainerRequest{ContainerId: c.ID})
			w.must(err)
		}
	}
}

// restartsAll says whether a container's exit restarts all of its pod.
func restartsAll(spec *v1.PodSpec, name string, code int32) bool {
	return slices.ContainsFunc(spec.Containers, func(c v1.Container) bool {
		return c.Name == name && slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers && slices.Contains(r.ExitCodes.Values, code)
		})
	})
}

// apart names a container that was not restarted with the others of its pod;
// empty when there is none.
func (j *judge) apart(sub *subject, uid string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[sub.pod.Name]
	if f == nil || f.rounds == 0 || j.forgotten[uid] { // what is forgotten is not known to have ended so
		return ""
	}
	for _, list := range [][]v1.Container{f.sub.pod.Spec.InitContainers, f.sub.pod.Spec.Containers} {
		for i := range list {
			if r := j.record(uid, list[i].Name); r.round < f.rounds {
				return list[i].Name
			}
		}
	}
	return ""
}

// extra adds to some scenarios what the others do not have; it takes its choices
// from a source of its own.
func (s *scenario) extra(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	for range rng.IntN(3) * rng.IntN(2) {
		at := time.Duration(rng.Int64N(int64(s.noisy)))
		s.add(at, "the stream of events hangs", func(w *world) { w.rt.HangEvents() })
	}
	if rng.IntN(8) == 0 {
		grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
		sub := newPod(together, "t0", &grace, rng)
		s.put(sub)
		s.life(rng, sub)
	}
}
