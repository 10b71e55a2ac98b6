package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// subject is one pod of a scenario: what it is, what its processes and probes
// do, and what must have become of it when all is quiet.
type subject struct {
	pod    *v1.Pod
	static bool
	shape  string
	// mayChange: its first container's image may be changed.
	mayChange bool
	// scripts, probes and hooks (how an exec ends) of its containers, by name.
	scripts map[string]fakecri.Script
	probes  map[string]probeScript
	hooks   map[string]fakecri.ExecResult
	// sizes are what the first container was asked to have, in order; empty when
	// it has no size. guaranteed: cpus are limited, too.
	sizes      []size
	guaranteed bool
	// cpu is what it asks for always; zero for nothing, or for sizes.
	cpu int64
	// end is what the pod must come to if nothing disturbs it.
	end outcome
}

// outcome is what a pod must come to.
type outcome int

const (
	runs     outcome = iota // Running
	crashes                 // alive, a container comes and goes
	succeeds                // Succeeded
	fails                   // Failed
	waits                   // Pending, for ever
)

// maker makes the pod of a subject, with a random choice where the shape leaves one.
type maker struct {
	*subject
	rng  *rand.Rand
	spec *v1.PodSpec
}

func newSubject(rng *rand.Rand, i int) *subject {
	grace := int64([]int{0, 2, 10, 30}[rng.IntN(4)])
	all := shapes()
	pick := all[rng.IntN(len(all))]
	sub := newPod(pick.name, fmt.Sprintf("p%d", i), &grace, rng)
	if sub.static = rng.IntN(5) == 0 && !pick.needsAPI; sub.static {
		sub.pod.Spec.NodeName = ""
	}
	return sub
}

// newPod makes a pod of a shape.
func newPod(shape, name string, grace *int64, rng *rand.Rand) *subject {
	sub := &subject{shape: shape, scripts: map[string]fakecri.Script{}, probes: map[string]probeScript{}, hooks: map[string]fakecri.ExecResult{}}
	sub.pod = &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1.PodSpec{NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: grace},
	}
	switch m := (&maker{sub, rng, &sub.pod.Spec}); shape {
	case together:
		allTogether(m)
		return sub
	case filler, critical:
		m.asking()
		return sub
	case private, stranger:
		m.ofPrivate()
		return sub
	case claimant:
		m.claiming()
		return sub
	case spender:
		m.spending()
		return sub
	case diskUser, deviceUser:
		m.main(m.forever())
		return sub
	case drained:
		m.drain()
		return sub
	}
	for _, s := range append(shapes(), more...) {
		if s.name == shape {
			s.make(&maker{sub, rng, &sub.pod.Spec})
			return sub
		}
	}
	panic("no shape " + shape)
}

func (m *maker) short() time.Duration { return time.Duration(1+m.rng.IntN(5000)) * time.Millisecond }

func (m *maker) exit(code int32) fakecri.Run { return fakecri.Run{For: m.short(), Code: code} }

// main adds a container, before an init container.
func (m *maker) main(script fakecri.Script) *v1.Container {
	return m.add(&m.spec.Containers, "c", script)
}

func (m *maker) before(script fakecri.Script) *v1.Container {
	return m.add(&m.spec.InitContainers, "i", script)
}

func (m *maker) add(list *[]v1.Container, prefix string, script fakecri.Script) *v1.Container {
	name := fmt.Sprint(prefix, len(*list))
	*list = append(*list, v1.Container{Name: name, Image: goodImage, ImagePullPolicy: v1.PullIfNotPresent})
	m.scripts[name] = script
	return &(*list)[len(*list)-1]
}

func (m *maker) sidecar(script fakecri.Script) *v1.Container {
	always := v1.ContainerRestartPolicyAlways
	c := m.before(script)
	c.RestartPolicy = &always
	return c
}

// ephemeral is the name of the debug container that a pod may get.
const ephemeral = "d0"

func isEphemeral(name string) bool { return name == ephemeral }

func (m *maker) policy(p v1.RestartPolicy, end outcome) { m.spec.RestartPolicy, m.end = p, end }

// forever runs until it is stopped, in one of the ways to take a SIGTERM.
func (m *maker) forever() fakecri.Script {
	return fakecri.Script{OnTerm: []fakecri.Term{{}, {After: m.short()}, {After: m.short(), Code: 143}, {Ignore: true}}[m.rng.IntN(4)]}
}

func probe() *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1}
}

const postStart, preStop = "postStart", "preStop"

func handler(command string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
}

// shape is a kind of pod.
type shape struct {
	name     string
	make     func(m *maker)
	needsAPI bool // cannot be a static pod
}

func shapes() []shape {
	return append(shapesByExit(), shapesByParts()...)
}

// shapesByExit differ in how their processes end.
func shapesByExit() []shape {
	run := fakecri.Sequence
	return []shape{
		{name: "forever", make: func(m *maker) { m.main(m.forever()); m.mayChange = true }},
		{name: "stubborn", make: func(m *maker) { m.main(fakecri.Script{OnTerm: fakecri.Term{Ignore: true}}) }},
		{name: "crasher", make: func(m *maker) { m.main(run(m.exit(1))); m.end = crashes }},
		{name: "exits with 0 again and again", make: func(m *maker) { m.main(run(m.exit(0))); m.end = crashes }},
		{name: "flaky", make: func(m *maker) {
			m.policy(v1.RestartPolicyOnFailure, succeeds)
			m.main(run(m.exit(1), m.exit(2), m.exit(0)))
		}},
		{name: "job", make: func(m *maker) { m.policy(v1.RestartPolicyNever, succeeds); m.main(run(m.exit(0))) }},
		{name: "failing", make: func(m *maker) { m.policy(v1.RestartPolicyNever, fails); m.main(run(m.exit(3))) }},
		{name: "two jobs", make: func(m *maker) {
			m.policy(v1.RestartPolicyOnFailure, succeeds)
			m.main(run(m.exit(0)))
			m.main(run(m.exit(1), m.exit(0)))
		}},
		{name: "one of two fails", make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, fails)
			m.main(run(m.exit(0)))
			m.main(run(m.exit(1)))
		}},
		{name: "one ends, one runs", make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, runs)
			m.main(run(m.exit(1)))
			m.main(m.forever())
			m.mayChange = true
		}},
		{name: "deadline", make: func(m *maker) {
			limit := int64(5 + m.rng.IntN(60))
			m.main(m.forever())
			m.spec.ActiveDeadlineSeconds, m.end = &limit, fails
		}},
		{name: "does not start", make: func(m *maker) {
			m.main(fakecri.Script{StartErr: fmt.Errorf("exec: no such file")})
			m.end = crashes
		}},
	}
}

// shapesByParts differ in what they are made of.
func shapesByParts() []shape {
	run := fakecri.Sequence
	return []shape{
		{name: "init", make: func(m *maker) { m.before(run(m.exit(0))); m.before(run(m.exit(0))); m.main(m.forever()) }},
		{name: "init fails first", make: func(m *maker) { m.before(run(m.exit(1), m.exit(0))); m.main(m.forever()) }},
		{name: "init fails for good", make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, fails)
			m.before(run(m.exit(1)))
			m.main(m.forever())
		}},
		{name: "sidecar of a job", make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, succeeds)
			m.sidecar(m.forever())
			m.sidecar(m.forever())
			m.main(run(m.exit(0)))
		}},
		{name: "sidecar that crashes", make: func(m *maker) {
			m.sidecar(run(m.exit(1), m.exit(1), fakecri.Run{For: -1}))
			m.before(run(m.exit(0)))
			m.main(m.forever())
		}},
		{name: "wrong image", make: func(m *maker) { m.main(m.forever()).Image = badImage; m.end = waits }},
		{name: "impossible image", make: func(m *maker) { m.main(m.forever()).Image = "UPPER:CASE:"; m.end = waits }},
		{name: "one wrong image", make: func(m *maker) {
			m.main(m.forever())
			m.main(m.forever()).Image = badImage
			m.end = waits
		}},
		{name: "two", make: func(m *maker) { m.main(m.forever()); m.main(m.forever()); m.mayChange = true }},
		{name: "host network", make: func(m *maker) { m.main(m.forever()); m.spec.HostNetwork = true }},
		{name: "ready later", make: func(m *maker) {
			c := m.main(m.forever())
			c.ReadinessProbe = probe()
			up := m.short()
			m.probes[c.Name] = probeScript{readiness: []turn{{time.Second, false}, {time.Second + up, true}, {up + 20*time.Second, false}, {up + 40*time.Second, m.rng.IntN(2) == 0}}}
			m.mayChange = true
		}},
		{name: "dies once", make: func(m *maker) {
			c := m.main(m.forever())
			c.LivenessProbe, c.ReadinessProbe = probe(), probe()
			m.probes[c.Name] = probeScript{liveness: []turn{{time.Second, true}, {m.short() + 5*time.Second, false}}, readiness: []turn{{2 * time.Second, true}}}
		}},
		{name: "slow start", make: func(m *maker) {
			c := m.main(m.forever())
			c.StartupProbe, c.ReadinessProbe = probe(), probe()
			m.probes[c.Name] = probeScript{startup: []turn{{m.short() + 3*time.Second, true}}, readiness: []turn{{time.Second, true}}}
			m.before(run(m.exit(0)))
		}},
		{name: "hooks", make: func(m *maker) {
			c := m.main(m.forever())
			c.Lifecycle = &v1.Lifecycle{PostStart: handler(postStart), PreStop: handler(preStop)}
			m.hooks[c.Name] = fakecri.ExecResult{After: m.short()}
		}},
		{name: "bad hook", make: func(m *maker) {
			c := m.main(m.forever())
			c.Lifecycle = &v1.Lifecycle{PostStart: handler(postStart)}
			m.hooks[c.Name] = fakecri.ExecResult{After: m.short(), Code: 1}
			m.end = crashes
		}},
		{name: "own policy", needsAPI: true, make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, runs)
			own := v1.ContainerRestartPolicyOnFailure
			m.main(run(m.exit(1), m.exit(2), fakecri.Run{For: -1})).RestartPolicy = &own
			m.main(m.forever())
		}},
		{name: "own rule", needsAPI: true, make: func(m *maker) {
			m.policy(v1.RestartPolicyNever, succeeds)
			own := v1.ContainerRestartPolicyNever
			c := m.main(run(m.exit(42), m.exit(0)))
			c.RestartPolicy = &own
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestart,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}},
		{name: "sized", needsAPI: true, make: func(m *maker) { m.guaranteed = m.rng.IntN(4) == 0; m.sized(m.main(m.forever())) }},
		{name: "sized, beside another", needsAPI: true, make: func(m *maker) {
			m.sized(m.main(m.forever()))
			m.main(m.forever())
			m.mayChange = true
		}},
		{name: "volumes", needsAPI: true, make: func(m *maker) { m.main(m.forever()); withVolumes(m.spec, "config") }},
		{name: "late", needsAPI: true, make: func(m *maker) { m.main(m.forever()); withVolumes(m.spec, m.pod.Name) }},
	}
}

// withVolumes gives the pod one of each volume that needs a mount or an object.
func withVolumes(spec *v1.PodSpec, configMap string) {
	size := resource.MustParse("1Mi")
	spec.Volumes = []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: configMap}}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "secret"}}},
	}
	for _, v := range spec.Volumes {
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "config", MountPath: "/one", SubPath: "a"})
}
