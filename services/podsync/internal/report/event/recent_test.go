package event

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheNewestEventsAreKeptWithoutAnApiserver(t *testing.T) {
	r := New(Config{NodeName: "n"}, Deps{})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	r.Pod(pod, v1.EventTypeNormal, "First", "is forgotten")
	for i := range mostRecent {
		r.Container(pod, "c", v1.EventTypeWarning, "BackOff", fmt.Sprint(i))
	}
	for range 5 {
		r.Node(v1.EventTypeNormal, "Again", strings.Repeat("x", 3*longMessage))
	}
	got := r.Recent()
	if len(got) != mostRecent || got[0].Reason != "BackOff" || got[0].Message != "1" {
		t.Fatalf("%d events, the first is %+v", len(got), got[0])
	}
	last := got[len(got)-1]
	if last.Count != 5 || last.Kind != "Node" || last.Name != "n" || len(last.Message) > longMessage+8 {
		t.Errorf("the last one: %s %s ×%d, %d bytes", last.Kind, last.Name, last.Count, len(last.Message))
	}
	if before := got[len(got)-2]; before.Container != "c" || before.Namespace != "ns" || before.Count != 1 {
		t.Errorf("%+v", before)
	}
}

func TestAnEventCanBeSentWhateverIsInIt(t *testing.T) {
	r := New(Config{NodeName: "n"}, Deps{})
	r.Node(v1.EventTypeWarning, "FailedValidation", "static pod manifest /m/\xff.yaml: broken")
	if got := r.Recent(); len(got) != 1 || !utf8.ValidString(got[0].Message) {
		t.Errorf("%+v", got)
	}
}
