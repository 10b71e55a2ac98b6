package resize

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestWhoseTurnComesFirst(t *testing.T) {
	high := int32(1000)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := list("cpu", "1"), list("cpu", "2")
	wait := func(uid string, class v1.PodQOSClass, has, wants v1.ResourceList, since time.Time, edit ...func(*v1.Pod)) Waiting {
		return Waiting{Desired: pod(uid, class, wants, edit...), Allocated: pod(uid, class, has, edit...), Since: since}
	}
	important := func(p *v1.Pod) { p.Spec.Priority = &high }
	waiting := []Waiting{
		wait("new", v1.PodQOSBurstable, one, two, time.Time{}),
		wait("late", v1.PodQOSBurstable, one, two, at.Add(time.Minute)),
		wait("early", v1.PodQOSBurstable, one, two, at),
		wait("guaranteed", v1.PodQOSGuaranteed, one, two, at.Add(time.Hour)),
		wait("important", v1.PodQOSBurstable, one, two, at.Add(time.Hour), important),
		wait("less", v1.PodQOSBurstable, two, one, at.Add(time.Hour)),
	}
	Sort(waiting, func(w Waiting) Waiting { return w })
	var got []string
	for _, w := range waiting {
		got = append(got, w.Desired.Name)
	}
	if want := []string{"less", "important", "guaranteed", "early", "late", "new"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
