package status

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func TestAmountsOfThePodArriveWhateverTheObjectHad(t *testing.T) {
	list := func(names ...v1.ResourceName) v1.ResourceList {
		l := v1.ResourceList{}
		for _, n := range names {
			l[n] = resource.MustParse("1")
		}
		return l
	}
	with := func(l v1.ResourceList) v1.PodStatus {
		if l == nil {
			return v1.PodStatus{}
		}
		return v1.PodStatus{AllocatedResources: l, Resources: &v1.ResourceRequirements{Requests: l, Limits: l}}
	}
	for _, tc := range []struct{ before, after v1.ResourceList }{
		{nil, list("cpu")}, {list("memory"), list("cpu")}, {list("cpu", "memory"), list("memory")}, {list("cpu"), nil},
	} {
		patch, err := buildPatch("u", with(tc.after), with(tc.before))
		if err != nil {
			t.Fatal(err)
		}
		object, err := json.Marshal(v1.Pod{Status: with(tc.before)})
		if err != nil {
			t.Fatal(err)
		}
		merged, err := strategicpatch.StrategicMergePatch(object, patch, v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		var got v1.Pod
		if err := json.Unmarshal(merged, &got); err != nil {
			t.Fatal(err)
		}
		want := with(tc.after)
		if !equality.Semantic.DeepEqual(got.Status.AllocatedResources, want.AllocatedResources) || !equality.Semantic.DeepEqual(got.Status.Resources, want.Resources) {
			t.Errorf("%v became %v, %+v by %s", tc.before, got.Status.AllocatedResources, got.Status.Resources, patch)
		}
	}
}

func TestTheAddressOfAPodThatHasEndedIsNeverTakenAway(t *testing.T) {
	address := v1.PodStatus{PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}
	for phase, keeps := range map[v1.PodPhase]bool{v1.PodFailed: true, v1.PodSucceeded: true, v1.PodPending: false, v1.PodRunning: false} {
		patch, err := buildPatch("u", v1.PodStatus{Phase: phase}, v1.PodStatus{}) // known is from before the address
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(v1.Pod{Status: address})
		if err != nil {
			t.Fatal(err)
		}
		merged, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		var after v1.Pod
		if err := json.Unmarshal(merged, &after); err != nil {
			t.Fatal(err)
		}
		if got := after.Status.PodIP != "" && len(after.Status.PodIPs) == 1; got != keeps {
			t.Errorf("%s: %+v", phase, after.Status)
		}
	}
}
