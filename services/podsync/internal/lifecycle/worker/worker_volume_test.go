package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// What a pod's words bring about is its own failure, told and tried again.
func TestAnActionThatPanicsHasFailedAndTheOtherPodsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		hostile, panics := newPod("hostile", v1.Container{Image: "app:1"}), 3
		r.e.setup = func(pod *v1.Pod) error {
			if pod.UID == hostile.UID && panics > 0 {
				panics--
				panic("a library's")
			}
			return nil
		}
		before := contain.Seen()
		r.reg.Ready("api")
		r.reg.Set(hostile, "api")
		other := newPod("other", v1.Container{Image: "app:1"})
		r.reg.Set(other, "api")
		r.until("the other is ready", time.Second, func() bool { return isReady(r.status(other.UID)) })
		r.until("it is tried again", 5*time.Minute, func() bool { return isReady(r.status(hostile.UID)) })
		if got := contain.Seen() - before; got != 3 {
			t.Errorf("%d panics were told of", got)
		}
		if said := strings.Join(r.e.said(), "\n"); !strings.Contains(said, " Warning InternalError internal error: set up volumes of pod ") {
			t.Errorf("events: %s", said)
		}
	})
}

// A CNI plugin annotates the pod while its sandbox is made, which is when its
// volumes are set up.
func TestAnnotationsThatChangeDuringTheSetupReachTheVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		var seen []string
		r.e.setup = func(pod *v1.Pod) error {
			seen = append(seen, pod.Annotations["a"])
			r.e.mu.Unlock()
			time.Sleep(300 * time.Millisecond)
			r.e.mu.Lock()
			return nil
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(100 * time.Millisecond)
		changed := pod.DeepCopy()
		changed.Annotations = map[string]string{"a": "cni"}
		r.reg.Set(changed, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		synctest.Wait()
		if !slices.Equal(seen, []string{"", "cni"}) {
			t.Errorf("a container runs with volumes that were set up for annotations %q", seen)
		}
	})
}

// A downwardAPI volume may show what its containers have.
func TestAResizeReachesTheVolumesWhenItIsAllocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		r.capacity = 1500
		var seen []string
		r.e.setup = func(pod *v1.Pod) error {
			seen = append(seen, pod.Spec.Containers[0].Resources.Limits.Cpu().String())
			return nil
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1", Resources: cpu("1")})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		for generation, amount := range []string{"1", "1200m", "2"} { // there is no room for the last
			changed := pod.DeepCopy()
			changed.Generation = int64(generation + 1)
			changed.Spec.Containers[0].Resources = cpu(amount)
			r.reg.Set(changed, "api")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if !slices.Equal(seen, []string{"1", "1200m"}) {
			t.Errorf("volumes were set up for cpu limits %q", seen)
		}
	})
}

// A container without a limit of its own is shown its pod's.
func TestAResizeOfThePodAsAWholeReachesTheVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})}})
		var seen []string
		r.e.setup = func(pod *v1.Pod) error {
			seen = append(seen, pod.Spec.Resources.Limits.Cpu().String())
			return nil
		}
		r.reg.Ready("api")
		for generation, amount := range []string{"1", "2"} {
			pod := newPod("p", v1.Container{Image: "app:1"})
			whole := cpu(amount)
			pod.Generation, pod.Spec.Resources = int64(generation+1), &whole
			r.reg.Set(pod, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if !slices.Equal(seen, []string{"1", "2"}) {
			t.Errorf("volumes were set up for cpu limits %q of the pod", seen)
		}
	})
}

func cpu(amount string) v1.ResourceRequirements {
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
	return v1.ResourceRequirements{Requests: one, Limits: one.DeepCopy()}
}
