package status

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// twoContainers is a pod that is never restarted, of which the first container
// has ended and the second runs.
func twoContainers(b *bench, withheld func(*v1.Pod, Refusal)) (*v1.Pod, v1.PodStatus) {
	b.Helper()
	b.w.deps.OnWithheld = withheld
	pod := b.createOf("p", v1.PodSpec{
		NodeName: "node", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i"}},
	})
	st := running("10.0.0.1")
	st.ContainerStatuses = []v1.ContainerStatus{
		{Name: "a", Image: "i:1", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}},
		{Name: "b", Image: "i", State: st.ContainerStatuses[0].State},
	}
	b.w.Set(pod, st)
	synctest.Wait()
	return pod, st
}

// again is the status in which the first container runs, and the second is ready.
func again(st v1.PodStatus) v1.PodStatus {
	st = *st.DeepCopy()
	st.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
	st.ContainerStatuses[0].Image, st.ContainerStatuses[0].RestartCount = "i:2", 1
	st.ContainerStatuses[1].Ready = true
	st.Conditions[1] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady"}
	return st
}

func TestATransitionThatIsRefusedForGoodDoesNotFreezeTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		var mu sync.Mutex
		var told []string
		pod, st := twoContainers(b, func(pod *v1.Pod, r Refusal) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, pod.Name+" "+r.Part.String()+" "+r.Why)
		})
		before := b.patches()
		next := again(st)
		b.w.Set(pod, next)
		synctest.Wait()
		got := b.api.Pod("default", "p").Status
		if a := got.ContainerStatuses[0]; a.State.Terminated == nil || a.Image != "i:1" || a.RestartCount != 0 {
			t.Errorf("the refused container is shown as %+v", a)
		}
		if !got.ContainerStatuses[1].Ready || podutil.Condition(got.Conditions, v1.PodReady).Status != v1.ConditionFalse {
			t.Errorf("the rest is not written: %+v", got)
		}
		if len(told) != 1 || told[0] != "p containerStatuses[a] status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state" {
			t.Errorf("told: %q", told)
		}
		trouble, ok := b.w.Trouble(pod.UID)
		if !ok || trouble.Err != nil || len(trouble.Refused) != 1 || trouble.Refused[0].Part != (Part{regularList, "a"}) {
			t.Errorf("trouble: %+v", trouble)
		}
		time.Sleep(time.Hour)
		b.w.Set(pod, next)
		time.Sleep(time.Hour)
		if n := b.patches() - before; n != 2 {
			t.Errorf("%d requests, want one that is refused and one without the part", n)
		}
		// Another change of the rest goes out by itself, at once.
		next = *next.DeepCopy()
		next.PodIP, next.PodIPs = "10.0.0.9", []v1.PodIP{{IP: "10.0.0.9"}}
		b.w.Set(pod, next)
		synctest.Wait()
		if n := b.patches() - before; n != 3 || b.api.Pod("default", "p").Status.PodIP != "10.0.0.9" {
			t.Errorf("after %d requests the address is %s", n, b.api.Pod("default", "p").Status.PodIP)
		}
	})
}

func TestAPartThatWasRefusedIsTriedAgainWhenItChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *bench, pod *v1.Pod, st *v1.PodStatus) *v1.Pod
		want   string
	}{
		"it ends": {func(_ *bench, pod *v1.Pod, st *v1.PodStatus) *v1.Pod {
			st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 0}}
			return pod
		}, "i:2"},
		"it changes and is refused again": {func(_ *bench, pod *v1.Pod, st *v1.PodStatus) *v1.Pod {
			st.ContainerStatuses[0].Ready = true
			return pod
		}, "i:1"},
		"the object shows another state": {func(b *bench, _ *v1.Pod, _ *v1.PodStatus) *v1.Pod {
			got, err := b.api.Admin().CoreV1().Pods("default").Patch(b.Context(), "p", types.MergePatchType, []byte(`{"status":{"containerStatuses":[]}}`), metav1.PatchOptions{}, "status")
			if err != nil {
				b.Fatal(err)
			}
			return got
		}, "i:2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, fakeapiserver.Config{}, nil)
				pod, st := twoContainers(b, untold)
				st = again(st)
				b.w.Set(pod, st)
				synctest.Wait()
				st = *st.DeepCopy()
				b.w.Set(tc.change(b, pod, &st), st)
				time.Sleep(2 * time.Second)
				if got := b.api.Pod("default", "p").Status.ContainerStatuses[0].Image; got != tc.want {
					t.Errorf("the container is shown with image %s, want %s", got, tc.want)
				}
				if _, troubled := b.w.Trouble(pod.UID); troubled != (tc.want == "i:1") {
					t.Errorf("trouble: %v", troubled)
				}
			})
		})
	}
}

func untold(*v1.Pod, Refusal) {}

func TestAPodIsFinishedThoughAPartOfItsEndIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fakeapiserver.Config{}, nil)
		pod, st := twoContainers(b, untold)
		st = again(st)
		st.Phase = v1.PodFailed
		b.w.Set(pod, st)
		if err := b.w.Finish(t.Context(), pod); err != nil || b.api.Pod("default", "p") != nil {
			t.Errorf("not finished: %v", err)
		}
		history := b.api.StatusHistory("default", "p")
		if last := history[len(history)-1].New.(*v1.Pod).Status; last.Phase != v1.PodFailed {
			t.Errorf("its last phase is %s", last.Phase)
		}
	})
}

func TestAnAnswerNamesThePartsThatAreRefusedForGood(t *testing.T) {
	answer := func(code int32, fields ...string) error {
		s := metav1.Status{Code: code, Details: &metav1.StatusDetails{}}
		for _, f := range fields {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Field: f, Message: "no"})
		}
		return &apierrors.StatusError{ErrStatus: s}
	}
	names := func(names ...string) (out []v1.ContainerStatus) {
		for _, n := range names {
			out = append(out, v1.ContainerStatus{Name: n})
		}
		return out
	}
	r := request{
		desired: v1.PodStatus{ContainerStatuses: names("a", "b"), InitContainerStatuses: names("i")},
		known:   v1.PodStatus{ContainerStatuses: names("b", "a"), EphemeralContainerStatuses: names("e")},
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a transition, by the place in what the apiserver has": {answer(422, "status.containerStatuses[0].state"), "containerStatuses[b]"},
		"a value, by the place in what was sent":               {answer(422, "status.containerStatuses[0].user.linux.uid"), "containerStatuses[a]"},
		"one that only the apiserver has":                      {answer(422, "status.ephemeralContainerStatuses[0].state"), "ephemeralContainerStatuses[e]"},
		"one that only was sent":                               {answer(422, "status.initContainerStatuses[0].state"), "initContainerStatuses[i]"},
		"two of one part":                                      {answer(422, "status.podIPs[0]", "status.podIPs"), "podIPs"},
		"two parts":                                            {answer(422, "status.hostIPs[0].ip", "status.conditions[1].Type"), "hostIPs conditions"},
		"a 403 about a field":                                  {answer(403, "status.qosClass"), "qosClass"},
		"a 403 of a right that is missing":                     {answer(403), ""},
		"a policy":                                             {answer(422, ""), ""},
		"a place that is nowhere":                              {answer(422, "status.containerStatuses[7].state"), ""},
		"a list as a whole":                                    {answer(422, "status.containerStatuses"), ""},
		"another object":                                       {answer(422, "metadata.uid"), ""},
		"a field that cannot be left out":                      {answer(422, "status.phase"), ""},
		"a conflict":                                           {answer(409, "status.podIPs"), ""},
		"no answer":                                            {fmt.Errorf("connection refused"), ""},
	} {
		var got []string
		for _, f := range refusalsIn(tc.err, r) {
			got = append(got, f.Part.String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestEachPartIsLeftOutByItself(t *testing.T) {
	had := v1.PodStatus{
		ObservedGeneration: 1, QOSClass: v1.PodQOSBurstable, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.0.0.2", HostIPs: []v1.HostIP{{IP: "10.0.0.2"}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: "example.com/a"}}, Resources: &v1.ResourceRequirements{}, AllocatedResources: v1.ResourceList{},
		ContainerStatuses: []v1.ContainerStatus{{Name: "a", Image: "1"}}, EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "e", Image: "1"}},
	}
	wanted := v1.PodStatus{
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}, {Type: "a b"}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "a", Image: "2"}, {Name: "b"}}, InitContainerStatuses: []v1.ContainerStatus{{Name: "i"}},
	}
	for name, tc := range map[string]struct {
		part Part
		left func(st v1.PodStatus) bool
	}{
		"a container": {Part{regularList, "a"}, func(st v1.PodStatus) bool {
			return st.ContainerStatuses[0].Image == "1" && len(st.ContainerStatuses) == 2
		}},
		"a container that the apiserver has not":  {Part{initList, "i"}, func(st v1.PodStatus) bool { return len(st.InitContainerStatuses) == 0 }},
		"a container that only the apiserver has": {Part{ephemeralList, "e"}, func(st v1.PodStatus) bool { return len(st.EphemeralContainerStatuses) == 1 }},
		"addresses":             {Part{Field: "podIPs"}, func(st v1.PodStatus) bool { return st.PodIP == "10.0.0.1" && len(st.PodIPs) == 1 && st.HostIP == "" }},
		"addresses of the host": {Part{Field: "hostIPs"}, func(st v1.PodStatus) bool { return st.HostIP == "10.0.0.2" && len(st.HostIPs) == 1 }},
		"conditions of others, never the node's": {Part{Field: "conditions"}, func(st v1.PodStatus) bool {
			return len(st.Conditions) == 2 && st.Conditions[0].Status == v1.ConditionFalse && st.Conditions[1].Type == "example.com/a"
		}},
		"generation":                  {Part{Field: "observedGeneration"}, func(st v1.PodStatus) bool { return st.ObservedGeneration == 1 }},
		"class":                       {Part{Field: "qosClass"}, func(st v1.PodStatus) bool { return st.QOSClass == v1.PodQOSBurstable }},
		"resources of the pod":        {Part{Field: "resources"}, func(st v1.PodStatus) bool { return st.Resources != nil }},
		"what the pod has been given": {Part{Field: "allocatedResources"}, func(st v1.PodStatus) bool { return st.AllocatedResources != nil }},
	} {
		st := wanted
		partsOf(&had).putAll(&st, []refusal{{Refusal: Refusal{Part: tc.part}}})
		if !tc.left(st) {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if wanted.ContainerStatuses[0].Image != "2" || wanted.Conditions[1].Type != "a b" {
		t.Errorf("what is wanted was changed: %+v", wanted)
	}
}
