package csinode

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestADriverThatNoCSINodeCanHaveKeepsNoOtherOut(t *testing.T) {
	for name, bad := range map[string]Driver{
		"its name":               {Name: "a_b", NodeID: "n"},
		"its name of the node":   {Name: "a", NodeID: strings.Repeat("n", 257)},
		"the key of a label":     {Name: "a", NodeID: "n", Topology: map[string]string{"a/b/c": "z"}},
		"the value of a label":   {Name: "a", NodeID: "n", Topology: map[string]string{"topology.a/zone": "the first"}},
		"the length of a value":  {Name: "a", NodeID: "n", Topology: map[string]string{"topology.a/zone": strings.Repeat("z", 64)}},
		"no name of the node":    {Name: "a"},
		"a label without a name": {Name: "a", NodeID: "n", Topology: map[string]string{"": "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapiserver.Config{}, func(b *bench) {
				b.Tell([]Driver{bad, {Name: "b", NodeID: "n"}}, true)
				b.want(`[{"name":"b","nodeID":"n","topologyKeys":null}]`, `{"b":"n"}`)
				if got := b.health.last; !strings.Contains(got, "cannot be in a CSINode") {
					t.Errorf("health says %q", got)
				}
			})
		})
	}
}

// As NodeRestriction refuses a label of kubernetes.io that is none of a node's own.
func TestADriverWhoseWordsAreRefusedKeepsNoOtherOutAndNoNodeFromBeingReady(t *testing.T) {
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Resource == "nodes" && q.Verb == "patch" && (q.N < 2 || q.N == 3 || q.N == 4) { // both at once, and the first alone; twice
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}}
	inBubble(t, cfg, func(b *bench) {
		b.Tell([]Driver{{Name: "a", NodeID: "n"}, {Name: "b", NodeID: "n"}}, true)
		// At once: before the first is tried again.
		time.Sleep(50 * time.Millisecond)
		if text := b.now(); text != `[{"name":"b","nodeID":"n","topologyKeys":null}]` {
			t.Errorf("the CSINode has %s", text)
		}
		b.want(`[{"name":"b","nodeID":"n","topologyKeys":null},{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n","b":"n"}`)
	})
}

// now is told, without waiting.
func (b *bench) now() string {
	b.t.Helper()
	csi, err := b.admin.StorageV1().CSINodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(csi.Spec.Drivers)
	return string(text)
}

// As an apiserver that is older, or newer, may refuse what one driver says of itself.
func TestADriverThatTheCSINodeIsRefusedForKeepsNoOtherOut(t *testing.T) {
	var refuse atomic.Int64
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Resource == "csinodes" && q.Verb == "update" && refuse.Add(-1) >= 0 {
			return fakeapiserver.Fault{Status: 422}
		}
		return fakeapiserver.Fault{}
	}}
	inBubble(t, cfg, func(b *bench) {
		b.want("[]", "")
		refuse.Store(2) // both at once, and the first alone
		b.Tell([]Driver{{Name: "a", NodeID: "n"}, {Name: "b", NodeID: "n"}}, true)
		time.Sleep(50 * time.Millisecond)
		if text := b.now(); text != `[{"name":"b","nodeID":"n","topologyKeys":null}]` {
			t.Errorf("the CSINode has %s, health is %s", text, b.health.now())
		}
		b.want(`[{"name":"b","nodeID":"n","topologyKeys":null},{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n","b":"n"}`)
	})
}
