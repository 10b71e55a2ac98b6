package answer

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAListWithoutAVersionIsNoAnswer(t *testing.T) {
	broken := errors.New("no route to host")
	if err := List(&v1.PodList{}, broken); !errors.Is(err, broken) {
		t.Errorf("an error is %v", err)
	}
	if List(&v1.PodList{Items: []v1.Pod{{}}}, nil) == nil {
		t.Error("a list without a version is one")
	}
	if err := List(&v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil); err != nil {
		t.Errorf("an empty list of version 7 is %v", err)
	}
}

func TestAnObjectThatIsNotTheOneAskedForIsNoAnswer(t *testing.T) {
	broken := errors.New("no route to host")
	if err := Object(&v1.Node{}, "n", broken); !errors.Is(err, broken) {
		t.Errorf("an error is %v", err)
	}
	for _, meta := range []metav1.ObjectMeta{{}, {Name: "n"}, {UID: "u"}, {Name: "m", UID: "u"}} {
		if Object(&v1.Node{ObjectMeta: meta}, "n", nil) == nil {
			t.Errorf("%+v is Node n", meta)
		}
	}
	if err := Object(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}, "n", nil); err != nil {
		t.Errorf("Node n is %v", err)
	}
}
