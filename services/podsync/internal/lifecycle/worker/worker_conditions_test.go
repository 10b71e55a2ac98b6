package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/report/conditions"
)

func TestAStaticPodIsReadySinceItBecameSoWhateverRestartsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		kept := conditions.New(conditions.Deps{})
		pod := newPod("p", v1.Container{Image: "app:1"})
		live := func() metav1.Time {
			r.reg.deps.Conditions = kept
			r.reg.Set(pod.DeepCopy(), "file")
			r.reg.Ready("api") // When all is seen what is kept of others goes.
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
			return readySince(r.status(pod.UID))
		}
		was := live()
		time.Sleep(time.Hour)
		r.stop()
		r.e.mu.Lock()
		clear(r.e.statuses)
		r.e.mu.Unlock()
		r.start()
		if is := live(); is.Unix() != was.Unix() {
			t.Errorf("Ready since %v, was since %v", is, was)
		}
		r.reg.Remove(pod.UID, "file")
		r.until("gone", time.Minute, func() bool { return kept.Of(pod.UID) == nil })
	})
}

func readySince(st v1.PodStatus) metav1.Time {
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}
