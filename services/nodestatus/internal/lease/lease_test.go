package lease

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// said keeps what a Reporter is told last.
type said struct{ message atomic.Pointer[string] }

func (s *said) Set(_ string, ready bool, message string) {
	if ready {
		message = "well"
	}
	s.message.Store(&message)
}

func (s *said) last() string {
	if m := s.message.Load(); m != nil {
		return *m
	}
	return ""
}

// node makes the Node n1.
func node(t *testing.T, api *fakeapiserver.Server) {
	t.Helper()
	if _, err := api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Who deletes a Node means it: its lease goes with it, and comes with the next one.
func TestNoLeaseIsMadeForANodeThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		var health said
		closed := 0
		k := New(Config{
			NodeName: "n1", Duration: 40 * time.Second, Client: api.Client().CoordinationV1().Leases(namespace), Nodes: api.Client().CoreV1().Nodes(),
			NodeUID: func() types.UID { return "of-the-deleted-one" }, Health: &health, OnRepeatedFailure: func() { closed++ },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		leases := api.Admin().CoordinationV1().Leases(namespace)
		there := func() (types.UID, bool) {
			l, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil || len(l.OwnerReferences) != 1 {
				return "", false
			}
			return l.OwnerReferences[0].UID, true
		}
		time.Sleep(time.Minute)
		if _, made := there(); made || !strings.Contains(health.last(), "no Node of this name") {
			t.Errorf("before the Node is there: made %v, health %q", made, health.last())
		}
		node(t, api)
		time.Sleep(9 * time.Second)
		if uid, made := there(); !made || uid != api.Node("n1").UID || health.last() != "well" {
			t.Errorf("once it is: owner %q, %v, health %q", uid, made, health.last())
		}
		for _, err := range []error{api.Admin().CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}), leases.Delete(t.Context(), "n1", metav1.DeleteOptions{})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		if _, made := there(); made || closed > 1 || !strings.Contains(health.last(), "deleted it") {
			t.Errorf("after it was deleted: made %v, connections closed %d times, health %q", made, closed, health.last())
		}
		cancel()
		<-done
	})
}

func TestALeaseThatIsNotRenewedIsToldUntilItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Hang: hangs.Load()}
		}})
		defer api.Close()
		node(t, api)
		var health said
		k := New(Config{
			NodeName: "n1", Duration: 40 * time.Second, Client: api.Client().CoordinationV1().Leases(namespace),
			Nodes: api.Client().CoreV1().Nodes(), NodeUID: func() types.UID { return "" }, Health: &health,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		time.Sleep(15 * time.Second)
		if got := health.last(); got != "well" {
			t.Errorf("while it is renewed: %q", got)
		}
		hangs.Store(true)
		time.Sleep(35 * time.Second) // before the lease has run out
		if got := health.last(); !strings.Contains(got, "lease kube-node-lease/n1") || !strings.Contains(got, "it was last at") || !strings.Contains(got, "check that the apiserver runs") {
			t.Errorf("while the apiserver hangs: %q", got)
		}
		hangs.Store(false)
		time.Sleep(30 * time.Second)
		if got := health.last(); got != "well" {
			t.Errorf("once it answers again: %q", got)
		}
		cancel()
		<-done
	})
}

func TestWhatIsNoAnswerOfAnApiserverRenewsNoLease(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		for _, kind := range fakeapiserver.AllNonsense() {
			synctest.Test(t, func(t *testing.T) { answeredNonsense(t, verb, kind) })
		}
	}
}

// answeredNonsense answers with it whatever is asked with this verb: from the start, and
// after two minutes without.
func answeredNonsense(t *testing.T, verb string, kind fakeapiserver.Nonsense) {
	var nonsense atomic.Bool
	nonsense.Store(true)
	api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if nonsense.Load() && q.Verb == verb {
			return fakeapiserver.Fault{Nonsense: &kind}
		}
		return fakeapiserver.Fault{}
	}})
	defer api.Close()
	node(t, api)
	var health said
	k := New(Config{
		NodeName: "n1", Duration: 40 * time.Second, Client: api.Client().CoordinationV1().Leases(namespace), Nodes: api.Client().CoreV1().Nodes(),
		NodeUID: func() types.UID { return "" }, Health: &health,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	defer func() { cancel(); <-done }()
	look := func(when string, renewed bool) {
		t.Helper()
		time.Sleep(2 * time.Minute)
		since := time.Since(k.Status().RenewTime)
		if (since < time.Minute) != renewed || (health.last() == "well") != renewed {
			t.Errorf("%s, %s: renewed %v ago, health %q", kind.Name, when, since, health.last())
		}
	}
	look("from the start", false)
	nonsense.Store(false)
	look("in order", true)
	nonsense.Store(true)
	look("later", verb != "update")
	nonsense.Store(false)
	look("in order again", true)
}
