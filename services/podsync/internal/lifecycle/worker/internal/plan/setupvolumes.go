package plan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// setUpVolumes asks for what is missing of the volumes: of a pod that is to
// start something, and of one that runs when a volume may show an earlier
// version of it, or nobody has kept its content current since a previous run.
// One that failed is tried again when its own time has come.
func (p *planner) setUpVolumes() {
	if p.anyRunning(podstate.SetupVolumes, podstate.TeardownVolumes) {
		return
	}
	if at := p.s.Volumes.Of[""].nextTry(); p.s.Now.Before(at) {
		p.wake(at)
		p.waitVolume("", at)
		return
	}
	var due, waiting []string
	for _, name := range volumeNames(p.s.Pod) {
		e := p.s.Volumes.Of[name]
		switch at := e.nextTry(); {
		case p.s.Volumes.shows(e):
		case p.s.Now.Before(at):
			p.wake(at)
			waiting = append(waiting, name)
		default:
			due = append(due, name)
		}
	}
	for _, name := range waiting[:min(len(waiting), mostVolumesNamed)] {
		p.waitVolume(name, p.s.Volumes.Of[name].nextTry())
	}
	if more := len(waiting) - mostVolumesNamed; more > 0 {
		p.wait("volume", "", fmt.Sprintf("%d more volumes cannot be set up", more), "", time.Time{})
	}
	if len(due) > 0 {
		if due[0] != "" {
			due = slices.Insert(due, 0, "")
		}
		p.out.Actions = append(p.out.Actions, podstate.Action{
			Key: podstate.Key{Kind: podstate.SetupVolumes}, Volumes: due, Version: p.s.Volumes.Version,
		})
	}
}

// mostVolumesNamed is of how many volumes of a pod people are told each by itself
// that they cannot be set up: there may be thousands.
const mostVolumesNamed = 10

// waitVolume says that a volume could not be set up and is tried again at a time.
func (p *planner) waitVolume(name string, retry time.Time) {
	f := p.s.Volumes.Of[name].Failure
	p.out.Waits = append(p.out.Waits, podstate.Wait{
		Kind: "volume", Object: name, Action: podstate.Key{Kind: podstate.SetupVolumes}, Reason: f.Message, Advice: advice(podstate.SetupVolumes, f), Retry: retry,
	})
}

// settingUp says what a set-up that runs or begins now is waited for: each volume
// that has failed before, and the others together.
func (p *planner) settingUp(a podstate.Action) {
	named, others := 0, false
	for _, name := range a.Volumes {
		f := p.s.Volumes.Of[name].Failure
		if f.Count == 0 || named == mostVolumesNamed {
			others = true
			continue
		}
		named++
		what := "the volume is being set up"
		if name == "" {
			what = "the volumes are being set up"
		}
		p.waitFor(a, name, again(what, f), advice(a.Kind, f))
	}
	if others {
		reason, todo := p.doing(a)
		p.waitFor(a, "", reason, todo)
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
func (p *planner) volumesTried() bool { return p.volumesSeenTo.ask(p.tried) }

func (p *planner) tried() bool {
	return p.s.Volumes.fails() || p.s.Volumes.current(p.s.Pod)
}

// volumesWereReady says whether all volumes have been set up at some time, in
// a previous run too: no container is made before, and the condition that says
// so stands while the sandbox does.
func (p *planner) volumesWereReady() bool {
	if p.s.Volumes.Once || len(p.s.Observed.Containers) > 0 {
		return true
	}
	c := podutil.Condition(p.s.Reported.Conditions, v1.PodReadyToStartContainers)
	return c != nil && c.Status == v1.ConditionTrue
}
