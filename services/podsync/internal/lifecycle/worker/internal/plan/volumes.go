package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Volumes is how the pod's volumes stand, each by itself. The zero value is
// that of a pod none of whose volumes is known to be set up.
type Volumes struct {
	// Version counts, in this process's life, the changes of what a volume may
	// show of its pod: labels, annotations, and cpu and memory.
	Version int
	// SetUp is the Version that a volume was set up for last, by its name. One
	// that is not in it is not set up. The empty name is what all lie in.
	SetUp map[string]int
	// Standing are those that are set up in some version, perhaps of a previous run,
	// as the last attempt found that could not set up all; nil when none failed.
	Standing map[string]bool
	// Once: all were set up at the same time once in this process's life.
	Once bool
}

// Done notes that all volumes of a pod were set up for a version of it.
func (v *Volumes) Done(pod *v1.Pod, version int) {
	v.SetUp, v.Standing, v.Once = map[string]int{"": version}, nil, true
	for i := range pod.Spec.Volumes {
		v.SetUp[pod.Spec.Volumes[i].Name] = version
	}
}

// Failed notes that not all volumes of a pod could be set up, and which of them stand
// all the same.
func (v *Volumes) Failed(standing []string) {
	v.Standing = map[string]bool{}
	for _, name := range standing {
		v.Standing[name] = true
	}
}

// Gone notes that they were torn down.
func (v *Volumes) Gone() { v.SetUp, v.Standing = nil, nil }

// current says whether all of the pod's volumes show its newest version.
func (v *Volumes) current(pod *v1.Pod) bool {
	return v.all(pod, func(version int) bool { return version == v.Version })
}

// ready says whether all of the pod's volumes are set up, for whatever version
// of it: what changes while a pod is there, or is deleted then, as a ConfigMap,
// must not keep its containers from starting again.
func (v *Volumes) ready(pod *v1.Pod) bool {
	return v.all(pod, func(int) bool { return true })
}

// stand says whether all of the pod's volumes are set up, though those that a previous
// run has set up cannot be made anew.
func (v *Volumes) stand(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if !v.Standing[pod.Spec.Volumes[i].Name] {
			return false
		}
	}
	return v.Standing != nil
}

func (v *Volumes) all(pod *v1.Pod, good func(version int) bool) bool {
	is := func(name string) bool {
		version, ok := v.SetUp[name]
		return ok && good(version)
	}
	for i := range pod.Spec.Volumes {
		if !is(pod.Spec.Volumes[i].Name) {
			return false
		}
	}
	return is("")
}

// setUpVolumes asks for what is missing of the volumes: of a pod that is to
// start something, and of one that runs when a volume may show an earlier
// version of it, or nobody has kept its content current since a previous run.
func (p *planner) setUpVolumes() {
	if !p.s.Volumes.current(p.s.Pod) && !p.anyRunning(podstate.TeardownVolumes) {
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}, Version: p.s.Volumes.Version})
	}
}

// volumesReady says whether containers can start with the volumes as they are. One
// that ran in the sandbox before starts again with what a previous run has set up: that
// podsync was killed must not keep it from that when a ConfigMap is gone, or the
// apiserver is away.
func (p *planner) volumesReady() bool {
	return p.s.Volumes.ready(p.s.Pod) || p.hasRunIn(p.usableID()) && p.s.Volumes.stand(p.s.Pod)
}

// hasRunIn says whether a container has run in the sandbox.
func (p *planner) hasRunIn(sandbox string) bool {
	for i := range p.s.Observed.Containers {
		if c := &p.s.Observed.Containers[i]; c.SandboxID == sandbox && !c.StartedAt.IsZero() {
			return true
		}
	}
	return false
}

// volumesTried says whether the volumes are set up for the pod as it is now, or cannot
// be: a debug container, which starts once and never again, may be the first to mount
// one of them beneath another.
func (p *planner) volumesTried() bool {
	_, failed := p.s.Failures[podstate.Key{Kind: podstate.SetupVolumes}]
	return failed || p.s.Volumes.current(p.s.Pod)
}

// volumesWereReady says whether all volumes have been set up at some time, in
// a previous run too: no container is made before, and the condition that says
// so stands while the sandbox does.
func (p *planner) volumesWereReady() bool {
	if p.s.Volumes.Once || len(p.s.Observed.Containers) > 0 {
		return true
	}
	for i := range p.s.Reported.Conditions {
		if c := &p.s.Reported.Conditions[i]; c.Type == v1.PodReadyToStartContainers {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
