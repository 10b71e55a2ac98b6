package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestOnlyTheNewestIsSeen(t *testing.T) {
	l := newLatest()
	for _, n := range []string{"first", "second"} {
		l.set(&v1.Node{Spec: v1.NodeSpec{ProviderID: n}})
	}
	<-l.changed
	if got := l.get().Spec.ProviderID; got != "second" {
		t.Errorf("the %s is seen", got)
	}
	select {
	case <-l.changed:
		t.Error("two changes are told, and one can be seen")
	default:
	}
	l.set(nil)
	if <-l.changed; l.get() != nil {
		t.Error("that it was deleted is not seen")
	}
}
