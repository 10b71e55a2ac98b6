package worker

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/admission"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// burst is a registry of n pods that a node with so many cpus is asked for, with the
// decisions that podsync takes and without workers.
func burst(n int, cpus string) *Registry {
	node := &v1.Node{}
	node.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse(cpus), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("1000")}
	check := func(pod *v1.Pod, active []*v1.Pod, resized bool) podstate.Admission {
		return admission.Check(admission.Input{Pod: pod, Node: node, Active: active, Resize: resized}).Admission
	}
	r := New(Config{}, Deps{
		Admit: func(q Question) Answer { return Answer{Admission: check(q.Pod, q.Active, false)} },
		Resize: func(q ResizeQuestion) *podstate.ResizePending {
			if a := check(q.Pod, q.Active, true); a.Decision != podstate.Admitted {
				return &podstate.ResizePending{Reason: v1.PodReasonDeferred, Cause: a.Reason, Message: a.Message}
			}
			return nil
		},
	})
	r.all = time.Now()
	for i := range n {
		pod := newPod(fmt.Sprintf("p%03d", i), sized("100m", "10Mi"), sized("100m", "10Mi"))
		h, _ := newHeld(r, pod.UID, uint64(i))
		h.pod, h.source = pod, apiSource
		r.pods[pod.UID] = h
	}
	return r
}

// admitAll lets every pod ask once, as their workers do when many pods come at once.
func (r *Registry) admitAll() (admitted int) {
	for uid, h := range r.pods {
		if a, _ := r.admit(uid, Question{Pod: h.pod}); a.Decision == podstate.Admitted {
			admitted++
		}
	}
	return admitted
}

// grow lets every pod ask for more cpu, and decides on each as its worker asks.
func (r *Registry) grow() (waiting int) {
	for _, h := range r.pods {
		h.pod = asks(h.pod, 2, "300m", "10Mi")
	}
	for uid := range r.pods {
		r.resizeState(uid, false)
	}
	for _, h := range r.pods {
		if h.grant.pending != nil {
			waiting++
		}
	}
	return waiting
}

var sizes = []int{110, 500}

// BenchmarkAdmissionsInABurst is what it costs to admit many pods that come at once.
func BenchmarkAdmissionsInABurst(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := burst(n, "1000")
				b.StartTimer()
				if got := r.admitAll(); got != n {
					b.Fatalf("%d of %d admitted", got, n)
				}
			}
		})
	}
}

// BenchmarkResizesInABurst is what it costs to decide on the resizes of all pods at
// once: all can be allocated, or all have to wait.
func BenchmarkResizesInABurst(b *testing.B) {
	for name, room := range map[string]bool{"allocated": true, "waiting": false} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/pods=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					cpus, want := "1000", 0
					if !room {
						cpus, want = fmt.Sprintf("%dm", 200*n), n
					}
					r := burst(n, cpus)
					r.admitAll()
					b.StartTimer()
					if got := r.grow(); got != want {
						b.Fatalf("%d wait, want %d", got, want)
					}
				}
			})
		}
	}
}

// One that gives back cpu for memory comes after those that want cpu, and lets them in.
func TestAResizeThatGivesSomethingBackLetsThoseBeforeItIn(t *testing.T) {
	r := burst(3, "600m")
	r.admitAll() // all cpu is taken
	more, less, most := r.pods["uid-p000"], r.pods["uid-p001"], r.pods["uid-p002"]
	high := int32(10)
	more.pod = asks(more.pod, 2, "300m", "10Mi") // 200m more
	more.pod.Spec.Priority = &high
	most.pod = asks(most.pod, 2, "900m", "10Mi")
	most.pod.Spec.Priority = &high
	r.resizeState(more.uid, false)
	if more.grant.pending == nil || most.grant.pending == nil {
		t.Fatalf("with no cpu left: %+v, %+v", more.grant.pending, most.grant.pending)
	}
	less.pod = less.pod.DeepCopy()
	less.pod.Spec.Containers[1].Resources = sized("0", "10Mi").Resources
	less.pod = asks(less.pod, 2, "0", "50Mi") // gives 200m back
	r.resizeState(less.uid, false)
	if less.grant.pending != nil || more.grant.pending != nil || most.grant.pending == nil {
		t.Errorf("less %+v, more %+v, most %+v", less.grant.pending, more.grant.pending, most.grant.pending)
	}
}

// Whoever may change a pod can have it give back a little of one resource for a little of
// another, and each of those lets the others ask again: under the Registry's lock, that
// must not take the square of their number in decisions.
func TestResizesThatGiveSomethingBackAreDecidedOnInProportionToTheirNumber(t *testing.T) {
	decisions := func(n int) (count int) {
		r := burst(2*n, fmt.Sprintf("%dm", 400*n))
		r.admitAll() // all cpu is taken
		decide := r.deps.Resize
		r.deps.Resize = func(q ResizeQuestion) *podstate.ResizePending {
			count++
			return decide(q)
		}
		high := int32(10)
		for i := range n {
			stuck, mixed := r.pods[types.UID(fmt.Sprintf("uid-p%03d", i))], r.pods[types.UID(fmt.Sprintf("uid-p%03d", n+i))]
			stuck.pod = asks(stuck.pod, 2, "900", "10Mi")
			stuck.pod.Spec.Priority = &high
			mixed.pod = asks(mixed.pod, 2, "90m", "11Mi")
		}
		r.settleLocked(nil, triggerPeriodic)
		for i := range n {
			if w := r.pods[types.UID(fmt.Sprintf("uid-p%03d", n+i))]; w.resizingLocked() {
				t.Fatalf("a resize for which there is room waits: %+v", w.grant.pending)
			}
		}
		return count
	}
	if few, many := decisions(20), decisions(100); many > 8*few {
		t.Errorf("%d decisions for 20 and %d for 100", few, many)
	}
}
