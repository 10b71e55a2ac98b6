package apiserver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

func TestWhatIsNoAnswerOfAnApiserverIsNoNode(t *testing.T) {
	kinds := append(fakeapiserver.AllNonsense(),
		fakeapiserver.Nonsense{Name: "a watch of a Node without a name", Body: `{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1"}}`},
		fakeapiserver.Nonsense{Name: "a watch of the end of a Node without a name", Body: `{"type":"DELETED","object":{"kind":"Node","apiVersion":"v1"}}`})
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			var nonsense atomic.Bool
			api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
				if nonsense.Load() {
					return fakeapiserver.Fault{Nonsense: &kind}
				}
				return fakeapiserver.Fault{}
			}})
			defer api.Close()
			there, err := api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			nodes := api.Client().CoreV1().Nodes()
			n := Node{Name: "n1", Client: nodes, Heartbeat: nodes, Timeout: 10 * time.Second}
			nonsense.Store(true)
			if got, created, err := n.Register(t.Context(), node.Config{}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err == nil {
				t.Errorf("%s: registered %v, created %v", kind.Name, got, created)
			}
			if got, err := n.Get(t.Context()); err == nil {
				t.Errorf("%s: the Node is %v", kind.Name, got)
			}
			wanted := there.DeepCopy()
			wanted.Status.Phase = v1.NodeRunning
			if got, err := n.PatchStatus(t.Context(), there, wanted); err == nil {
				t.Errorf("%s: patched to %v", kind.Name, got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := n.Watch(ctx, there.ResourceVersion, func(got *v1.Node) { t.Errorf("%s: the watch says %v", kind.Name, got) }); err != nil {
				t.Error(err)
			}
		})
	}
}
