package resize

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAnAllocationIsWhatAPodHasInPlaceOfWhatItsSpecAsks(t *testing.T) {
	old := pod("p", v1.PodQOSBurstable, list("cpu", "1", "memory", "1Gi", "example.com/x", "1"))
	allocated := Of(old)
	text, err := allocated.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, ok := Decode(text)
	if !ok || !read.Equal(allocated) {
		t.Fatalf("read back %+v from %s", read, text)
	}
	if got := read.Apply(old); got != old {
		t.Error("a pod that has what it asks for was copied")
	}
	desired := pod("p", v1.PodQOSBurstable, list("cpu", "2", "example.com/x", "1"), level(list("cpu", "3")))
	got := read.Apply(desired)
	if want := old.Spec.Containers[0].Resources.Requests; !Of(got).Equal(allocated) || len(got.Spec.Containers[0].Resources.Requests) != len(want) || got.Spec.Resources != nil {
		t.Errorf("applied: %+v, %+v", got.Spec.Containers[0].Resources, got.Spec.Resources)
	}
	if desired.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 {
		t.Error("the desired pod was changed")
	}
	if back := Of(desired).Apply(got); !Of(back).Equal(Of(desired)) {
		t.Errorf("the other way: %+v", back.Spec)
	}
}

func TestAmountsAreEqualHoweverTheyAreWritten(t *testing.T) {
	a, b := Of(pod("p", "", list("cpu", "1000m", "memory", "1Gi"))), Of(pod("p", "", list("cpu", "1", "memory", "1024Mi")))
	if !a.Equal(b) {
		t.Error("1 is not 1000m")
	}
	if a.Equal(Of(pod("p", "", list("cpu", "1")))) {
		t.Error("no request is the same as one")
	}
}

func TestWhatIsNoAllocationIsNotRead(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", "x", `{"containers":3}`} {
		if a, ok := Decode(text); ok {
			t.Errorf("%q gave %+v", text, a)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"containers":{"c":{"requests":{"cpu":"1"}}},"pod":{"limits":{"memory":"1Gi"}}}`)
	f.Add(`{"containers":{"c":{"requests":{"cpu":"1e99999"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if a, ok := Decode(text); ok && !a.Equal(a) {
			t.Errorf("%q is not equal to itself", text)
		}
	})
}
