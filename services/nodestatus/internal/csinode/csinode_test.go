package csinode

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

const nodeName = "n1"

// healths keeps the last word.
type healths struct {
	mu   sync.Mutex
	last string
}

func (h *healths) Set(_ string, ready bool, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last = message; ready {
		h.last = "ready"
	}
}

// now is what was said last: ready, or why not.
func (h *healths) now() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

type bench struct {
	*Keeper
	t      *testing.T
	admin  kubernetes.Interface
	health *healths
	words  words
}

// words are what was told of the CSINode.
type words struct {
	mu  sync.Mutex
	all []string
}

func (w *words) tell(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, why)
}

// take returns what was told since the last time.
func (w *words) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// inBubble runs a Keeper against an apiserver that has the Node.
func inBubble(t *testing.T, cfg fakeapiserver.Config, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(cfg)
		b := &bench{t: t, admin: api.Admin(), health: &healths{}}
		node, err := b.admin.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"mine": "1"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		client := api.Client()
		b.Keeper = New(Config{
			NodeName: nodeName, Nodes: client.CoreV1().Nodes(), CSINodes: client.StorageV1().CSINodes(),
			NodeUID: func() types.UID { return node.UID }, Health: b.health,
			Initialized: b.words.tell,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		test(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// told is what the cluster knows now: the drivers of the CSINode as text, and the Node.
func (b *bench) told() (string, *v1.Node) {
	b.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	node, err := b.admin.CoreV1().Nodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	csi, err := b.admin.StorageV1().CSINodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none", node
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if !ownedBy(csi, nodeName, node.UID) || csi.Annotations[v1.MigratedPluginsAnnotationKey] != migrated {
		b.t.Errorf("the CSINode is %+v", csi.ObjectMeta)
	}
	text, _ := json.Marshal(csi.Spec.Drivers)
	return string(text), node
}

func (b *bench) want(drivers, ids string) *v1.Node {
	b.t.Helper()
	got, node := b.told()
	if got != drivers {
		b.t.Errorf("the CSINode has %s, want %s", got, drivers)
	}
	if is := node.Annotations[nodeIDs]; is != ids || node.Annotations["mine"] != "1" {
		b.t.Errorf("the Node's annotations are %v, want %s", node.Annotations, ids)
	}
	return node
}

func TestTheCSINodeFollowsTheDrivers(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(b *bench) {
		b.want("[]", "") // also without a driver
		b.Tell([]Driver{{Name: "b", NodeID: "i-1", MaxVolumes: 7, Topology: map[string]string{"topology.b/zone": "z", "zone": "a"}}}, true)
		entryB := `{"name":"b","nodeID":"i-1","topologyKeys":["topology.b/zone","zone"],"allocatable":{"count":7}}`
		node := b.want("["+entryB+"]", `{"b":"i-1"}`)
		if node.Labels["topology.b/zone"] != "z" || node.Labels["zone"] != "a" {
			t.Errorf("labels %v", node.Labels)
		}
		b.Tell([]Driver{{Name: "a", NodeID: "n"}}, false)
		b.want("["+entryB+`,{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n","b":"i-1"}`)
		b.Tell([]Driver{{Name: "b", NodeID: "i-2"}}, false) // started anew, on what it calls another node
		b.want(`[{"name":"a","nodeID":"n","topologyKeys":null},{"name":"b","nodeID":"i-2","topologyKeys":null}]`, `{"a":"n","b":"i-2"}`)
		b.Tell([]Driver{{Name: "a", Gone: true}}, false)
		b.want(`[{"name":"b","nodeID":"i-2","topologyKeys":null}]`, `{"b":"i-2"}`)
		b.Tell(nil, true) // podsync has just started
		b.want(`[{"name":"b","nodeID":"i-2","topologyKeys":null}]`, `{"b":"i-2"}`)
		b.Tell([]Driver{{Name: "b", Gone: true}}, true)
		b.want("[]", "")
	})
}

func TestADriverWhoseLabelsClashKeepsNoOtherOut(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(b *bench) {
		b.Tell([]Driver{{Name: "a", NodeID: "n", Topology: map[string]string{"zone": "other"}}, {Name: "b", NodeID: "n"}}, true)
		node := b.want(`[{"name":"b","nodeID":"n","topologyKeys":null}]`, `{"b":"n"}`)
		if node.Labels["zone"] != "a" {
			t.Errorf("labels %v", node.Labels)
		}
		if got := b.health.last; !strings.Contains(got, `detected topology value collision: driver reported "zone":"other" but existing label is "zone":"a"`) {
			t.Errorf("health says %q", got)
		}
	})
}

// TestALabelOfADriverWithoutAValueIsOnTheNode: whoever makes its volumes looks for the key.
func TestALabelOfADriverWithoutAValueIsOnTheNode(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(b *bench) {
		b.Tell([]Driver{{Name: "b", NodeID: "i-1", Topology: map[string]string{"topology.b/rack": ""}}}, true)
		if _, node := b.told(); !maps.Equal(node.Labels, map[string]string{"zone": "a", "topology.b/rack": ""}) {
			t.Errorf("labels %v", node.Labels)
		}
	})
}

func TestACSINodeOfAnotherNodeIsReplaced(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(b *bench) {
		b.want("[]", "")
		csi := b.admin.StorageV1().CSINodes()
		if err := csi.Delete(b.t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := csi.Create(b.t.Context(), &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "before"}}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "old", NodeID: "x"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.Tell([]Driver{{Name: "a", NodeID: "n"}}, true)
		b.want(`[{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n"}`)
	})
}

// TestACSINodeThatSomebodyHasDeletedComesBack: else no volume is attached to the node until
// a driver registers itself anew.
func TestACSINodeThatSomebodyHasDeletedComesBack(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(b *bench) {
		b.Tell([]Driver{{Name: "a", NodeID: "n"}}, true)
		entry := `[{"name":"a","nodeID":"n","topologyKeys":null}]`
		b.want(entry, `{"a":"n"}`)
		if err := b.admin.StorageV1().CSINodes().Delete(b.t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.want("none", `{"a":"n"}`)
		time.Sleep(8 * time.Minute)
		b.want(entry, `{"a":"n"}`)
	})
}

func TestWhatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	var mu sync.Mutex
	failing := true
	cfg := fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
		mu.Lock()
		defer mu.Unlock()
		if failing {
			return fakeapiserver.Fault{Drop: true}
		}
		return fakeapiserver.Fault{}
	}}
	inBubble(t, cfg, func(b *bench) {
		b.Tell([]Driver{{Name: "a", NodeID: "n"}}, true)
		time.Sleep(time.Minute)
		if got, _ := b.told(); got != "none" {
			t.Errorf("written though nothing can be: %s", got)
		}
		if got := b.health.last; got == "ready" || got == "" {
			t.Errorf("health says %q", got)
		}
		mu.Lock()
		failing = false
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		b.want(`[{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n"}`)
		if got := b.health.last; got != "ready" {
			t.Errorf("health says %q", got)
		}
	})
}

func TestTheFirstWordOfAllReplacesWhatWasKnown(t *testing.T) {
	k := New(Config{})
	k.Tell([]Driver{{Name: "a"}, {Name: "b"}}, true)
	k.Tell([]Driver{{Name: "b", Gone: true}}, false)
	k.Tell([]Driver{{Name: "c"}}, true)
	if got := maps.Collect(func(yield func(string, bool) bool) {
		for _, d := range k.known() {
			yield(d.Name, d.Gone)
		}
	}); len(got) != 1 || got["c"] {
		t.Errorf("known are %v", got)
	}
}

func TestWhatIsNoAnswerOfAnApiserverEndsNoCSINode(t *testing.T) {
	for _, kind := range fakeapiserver.AllNonsense() {
		var nonsense atomic.Bool
		faults := func(q fakeapiserver.Request) fakeapiserver.Fault {
			if nonsense.Load() && q.Resource == "csinodes" && q.Verb == "get" {
				return fakeapiserver.Fault{Nonsense: &kind}
			}
			return fakeapiserver.Fault{}
		}
		inBubble(t, fakeapiserver.Config{Faults: faults}, func(b *bench) {
			b.Tell([]Driver{{Name: "a", NodeID: "1"}}, true)
			b.told()
			is := func() types.UID {
				csi, err := b.admin.StorageV1().CSINodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
				if err != nil {
					b.t.Fatal(err)
				}
				return csi.UID
			}
			before := is()
			nonsense.Store(true)
			b.Tell([]Driver{{Name: "a", NodeID: "1"}, {Name: "b", NodeID: "1"}}, true)
			time.Sleep(10 * time.Minute)
			if is() != before || b.health.now() == "ready" {
				b.t.Errorf("%s: CSINode %s is %s, health %q", kind.Name, before, is(), b.health.now())
			}
			nonsense.Store(false)
			time.Sleep(2 * time.Minute)
			if is() != before || b.health.now() != "ready" {
				b.t.Errorf("%s: afterwards CSINode %s is %s, health %q", kind.Name, before, is(), b.health.now())
			}
		})
	}
}

func TestANodeLearnsThatItsCSINodeIsThereAndWhyNot(t *testing.T) {
	var served atomic.Bool
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if !served.Load() && q.Resource == "csinodes" {
			return fakeapiserver.Fault{Status: 404}
		}
		return fakeapiserver.Fault{}
	}}
	inBubble(t, cfg, func(b *bench) {
		time.Sleep(time.Minute)
		if told := b.words.take(); len(told) < 2 || told[0] != NotInitialized || !strings.HasPrefix(told[1], "failed to initialize CSINode: create CSINode n1: ") {
			t.Errorf("told while the apiserver has none: %q", told)
		}
		served.Store(true)
		time.Sleep(2 * time.Minute)
		b.Tell([]Driver{{Name: "a", NodeID: "n"}}, true)
		b.want(`[{"name":"a","nodeID":"n","topologyKeys":null}]`, `{"a":"n"}`)
		if told := b.words.take(); len(told) == 0 || told[len(told)-1] != "" {
			t.Errorf("told once it is there: %q", told)
		}
	})
}
