package status

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestAnEndThatIsKnownIsFinishedWithoutAnotherPatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		deleted, kept := b.create("deleted"), b.create("kept")
		end := running("10.0.0.1")
		end.Phase = v1.PodSucceeded
		down := *end.DeepCopy()
		down.Conditions = append(down.Conditions, v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse})
		for _, pod := range []*v1.Pod{deleted, kept} {
			b.w.Set(pod, end)
			synctest.Wait()
			b.w.Set(pod, down)
		}
		began := time.Now()
		if err := b.w.Finish(t.Context(), deleted); err != nil || time.Since(began) != 0 || b.api.Pod("default", "deleted") != nil {
			t.Errorf("finished after %v with %v", time.Since(began), err)
		}
		time.Sleep(time.Minute)
		if n := len(b.api.StatusHistory("default", "deleted")); n != 1 {
			t.Errorf("%d status writes of the deleted pod, want 1", n)
		}
		if got := b.api.Pod("default", "kept"); len(got.Status.Conditions) != len(down.Conditions) {
			t.Errorf("the pod that stays shows %+v", got.Status.Conditions)
		}
	})
}

// PodGC, or a user, has written that the pod failed while its containers ran.
func TestAnEndThatOthersHaveWrittenIsFinishedWithHowTheContainersEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod := b.create("a")
		runs := running("10.0.0.1")
		runs.Phase = v1.PodFailed
		b.w.Set(pod, runs)
		synctest.Wait()
		end := *runs.DeepCopy()
		end.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
		b.w.Set(pod, end)
		if err := b.w.Finish(t.Context(), pod); err != nil || b.api.Pod("default", "a") != nil {
			t.Fatalf("not finished: %v", err)
		}
		history := b.api.StatusHistory("default", "a")
		if last := history[len(history)-1].New.(*v1.Pod).Status.ContainerStatuses[0].State.Terminated; last == nil || last.ExitCode != 3 {
			t.Errorf("the object went with the container as %+v", last)
		}
	})
}
