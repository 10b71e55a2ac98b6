package sim

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = "default"
	volume    = "scratch"
	container = "c"
)

// pod is one of the node's: what it is, how it takes its end, and what podsync and stats
// know of it.
type pod struct {
	name   string
	object *v1.Pod
	// spared: it may not be evicted. priority and what it asks for are its object's.
	spared   bool
	priority int32
	asks     map[resourceKind]uint64
	// limits of what lies on disks; zero is none.
	volumeLimit, containerLimit, wholeLimit uint64
	grace                                   time.Duration
	// takes is how long it takes to end when it is asked to, late how long beyond its grace
	// period when it is killed.
	takes, late time.Duration
	// emptying is how long its volumes take to go after its end.
	emptying time.Duration
	// slow is how long its directories take to be measured.
	slow time.Duration

	// first is what it uses at first.
	first use
	// alive: something of it runs, since began. listed: its source has it.
	alive, listed bool
	began, ended  time.Time
	// down: its container has ended by itself, and begins anew when its back-off is over; up
	// is when it did last.
	down bool
	up   time.Time
	stop *stop
	// known is what stats has measured of its directories and layer, walkedAt and weighedAt
	// when, walking since when they are being measured.
	known               use
	walkedAt, weighedAt time.Time
	walking             time.Time
}

// resourceKind is what pods ask for.
type resourceKind int

const (
	ofMemory resourceKind = iota
	ofStorage
	ofNothing // nobody asks for inodes and processes
)

func kindOf(r good) resourceKind {
	switch r {
	case memory, podsMemory:
		return ofMemory
	case nodeBytes, imageBytes:
		return ofStorage
	}
	return ofNothing
}

// stop is podsync ending a pod for a reason of the node's own.
type stop struct {
	message, reason, signal string
	grace                   time.Duration
	since                   time.Time
	// kept: podsync knows it after its death, too.
	kept  bool
	timer *time.Timer
}

func newPod(name string) *pod {
	grace := int64(30)
	return &pod{
		name: name, grace: 30 * time.Second, asks: map[resourceKind]uint64{},
		object: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{"kubernetes.io/config.source": "api"}},
			Spec: v1.PodSpec{
				TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{Name: container}},
				Volumes: []v1.Volume{{Name: volume, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			},
			Status: v1.PodStatus{Phase: v1.PodRunning},
		},
	}
}

// ranked says whether it is known for so long what it uses of a resource.
func (p *pod) ranked(r good, long time.Duration) bool {
	return time.Since(p.began) >= long && (isDisk(r) || p.runs() && time.Since(p.up) >= long)
}

// runs says whether any process of it does.
func (p *pod) runs() bool { return p.alive && !p.down }

func (p *pod) uid() string { return string(p.object.UID) }

func (p *pod) ask(name v1.ResourceName, kind resourceKind, amount uint64) *pod {
	list := &p.object.Spec.Containers[0].Resources.Requests
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = *resource.NewQuantity(int64(amount), resource.BinarySI)
	p.asks[kind] = amount
	return p
}

func (p *pod) important(priority int32) *pod {
	p.priority, p.object.Spec.Priority = priority, &priority
	p.spared = p.spared || priority >= 2_000_000_000
	return p
}

// static has it come from a file.
func (p *pod) static() *pod {
	p.spared = true
	p.object.Annotations["kubernetes.io/config.source"] = "file"
	return p
}

func (p *pod) gives(grace time.Duration) *pod {
	seconds := int64(grace / time.Second)
	p.grace, p.object.Spec.TerminationGracePeriodSeconds = grace, &seconds
	return p
}

// limitVolume, limitContainer: no more than that may lie there.
func (p *pod) limitVolume(amount uint64) *pod {
	p.volumeLimit = amount
	p.object.Spec.Volumes[0].EmptyDir.SizeLimit = resource.NewQuantity(int64(amount), resource.BinarySI)
	return p
}

// limitContainer limits the container, and with it the pod as a whole.
func (p *pod) limitContainer(amount uint64) *pod {
	p.containerLimit, p.wholeLimit = amount, amount
	p.object.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(amount), resource.BinarySI)}
	return p
}

// over says by how much more than it may a pod has; counted is with files that were removed.
func (p *pod) over(u use, l layout, counted bool) string {
	removed := u.removed
	if !counted {
		removed = 0
	}
	ofContainer := u.logs
	if l != imagesApart && l != layersApart {
		ofContainer += u.layer
	}
	switch {
	case p.volumeLimit > 0 && u.volume+removed > p.volumeLimit:
		return "its volume's limit"
	case p.wholeLimit > 0 && u.volume+u.logs+u.layer+removed > p.wholeLimit:
		return "its own limit"
	case p.containerLimit > 0 && ofContainer > p.containerLimit:
		return "its container's limit"
	}
	return ""
}

func (p *pod) String() string { return fmt.Sprintf("pod %s", p.name) }

// crashLocked has the container of a pod end by itself. Until its back-off is over nothing of
// the pod runs, and what it has on disks is there; then the next one begins with a layer of
// its own, and the runtime keeps that of the one before.
func (w *world) crashLocked(p *pod, backOff time.Duration) {
	if !p.runs() {
		return
	}
	u := w.machine.uses[p.name]
	w.machine.uses[p.name] = use{volume: u.volume, files: u.files, logs: u.logs, layer: u.layer, layerFiles: u.layerFiles}
	p.down, p.known.kept, p.known.keptFiles = true, 0, 0
	w.tell("CRASH", p.name, backOff)
	if s := p.stop; s != nil {
		w.endsLocked(p, time.Now().Add(p.dying(s.grace)))
	}
	time.AfterFunc(backOff, func() { w.set(func() { w.beginsAnewLocked(p) }) })
}

// beginsAnewLocked is the end of a back-off.
func (w *world) beginsAnewLocked(p *pod) {
	if !p.alive || !p.down || p.stop != nil {
		return
	}
	u := w.machine.uses[p.name]
	u.kept, u.keptFiles, u.layer, u.layerFiles, u.memory, u.pids = u.layer, u.layerFiles, 0, 0, p.first.memory, p.first.pids
	w.machine.uses[p.name], p.down, p.up = u, false, time.Now()
	p.known.kept, p.known.keptFiles, p.known.layer, p.known.layerFiles = p.known.layer, p.known.layerFiles, 0, 0
	w.tell("BEGINS ANEW", p.name)
}
