package probestore

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestTargetsOfManyContainersAreEachResolvedByOneLook(t *testing.T) {
	steps.Grow(t, func(n int) {
		pod := probedPod()
		var targets []podstate.Target
		for i := range n {
			c := pod.Spec.Containers[0]
			c.Name = fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			targets = append(targets, podstate.Target{ProbeKey: podstate.ProbeKey{Container: c.Name, Type: podstate.Liveness}, ContainerID: c.Name})
		}
		b, _ := newBoard()
		b.Set(&v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, targets)
		b.Set(pod, targets)
		if got := len(b.pods[pod.UID].targets); got != n {
			t.Fatalf("%d of %d targets", got, n)
		}
	})
}
