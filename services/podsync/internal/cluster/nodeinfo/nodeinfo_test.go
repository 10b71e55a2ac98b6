package nodeinfo

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheNodesReadyConditionSaysThatTheMachineGoesDown(t *testing.T) {
	ready := func(status v1.ConditionStatus, message string) *v1.Node {
		n := &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "now"}}}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, Message: message}}
		return n
	}
	before := ready(v1.ConditionFalse, "node is shutting down")
	before.Status.NodeInfo.BootID = "before the machine's start"
	for _, c := range []struct {
		node *v1.Node
		want bool
	}{
		{nil, false},
		{before, false},
		{&v1.Node{}, false},
		{ready(v1.ConditionTrue, "kubelet is posting ready status"), false},
		{ready(v1.ConditionFalse, "[container runtime is down]"), false},
		{ready(v1.ConditionFalse, "node is shutting down"), true},
	} {
		if got := shuttingDown(c.node, "now"); got != c.want {
			t.Errorf("%+v: %v", c.node, got)
		}
	}
}

func TestAnOlderNodeObjectDoesNotReplaceANewerOne(t *testing.T) {
	n, told := New(Config{}, Deps{}), 0
	n.Subscribe(func() { told++ })
	version := func(uid, v string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: v}}
	}
	for _, c := range []struct{ uid, version, want string }{{"a", "9", "9"}, {"a", "10", "10"}, {"a", "9", "10"}, {"b", "3", "3"}} {
		before := n.Object()
		news := n.store(version(c.uid, c.version))
		if got := n.Object(); got.ResourceVersion != c.want || news != (got != before) {
			t.Errorf("after %s of %s: %s, news %v, want %s", c.version, c.uid, got.ResourceVersion, news, c.want)
		}
		if n.store(version(c.uid, c.version)) {
			t.Errorf("%s of %s is news a second time", c.version, c.uid)
		}
	}
	if told != 3 {
		t.Errorf("of 3 news %d were told", told)
	}
}

// known is what the watch has brought.
type known struct{ node *v1.Node }

func (k *known) KnownNode() *v1.Node { return k.node }

type nobody struct{}

func (nobody) Recheck() {}

func TestAnOlderNodeObjectIsTheNodeOnceEtcdWasRestored(t *testing.T) {
	version := func(v string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: v}}
	}
	watched := &known{version("100")}
	n := New(Config{}, Deps{Objects: watched, Pods: nobody{}})
	news := make(chan string)
	n.Subscribe(func() { news <- n.Object().ResourceVersion })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.FollowObject(ctx) }()
	is := func(want string) {
		t.Helper()
		if got := <-news; got != want {
			t.Errorf("the Node is of version %s, want %s", got, want)
		}
	}
	is("100")
	watched.node = version("7") // the watch is faster than who finds out
	n.Restored()
	is("7")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n.store(version("6")) {
		t.Error("an older one is news long after that")
	}
}
