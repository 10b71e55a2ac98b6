package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestVolumesAreSetUpForADebugContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		var seen []int
		r.e.setup = func(pod *v1.Pod) error { seen = append(seen, len(pod.Spec.EphemeralContainers)); return nil }
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		changed := pod.DeepCopy()
		changed.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "app:1"}}}
		r.reg.Set(changed, "api")
		r.until("the debug container runs", time.Minute, func() bool {
			st := r.status(pod.UID).EphemeralContainerStatuses
			return len(st) == 1 && st[0].State.Running != nil
		})
		if len(seen) != 2 || seen[1] != 1 {
			t.Errorf("volumes were set up for %v debug containers", seen)
		}
	})
}
