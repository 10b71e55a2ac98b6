package assigned

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// bench is a Keeper at an apiserver that has its Node.
type bench struct {
	*Keeper
	t   *testing.T
	api *fakeapiserver.Server

	mu      sync.Mutex
	events  []string
	note    string
	forbids string // a verb
	stop    func()
}

func (b *bench) Send(_ context.Context, e node.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.Reason+": "+e.Message)
}

func (b *bench) lastNote() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.note
}

func (b *bench) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events
}

func onBench(t *testing.T, story func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t}
		b.api = fakeapiserver.New(fakeapiserver.Config{Seed: 1, Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			b.mu.Lock()
			defer b.mu.Unlock()
			if q.Resource == "configmaps" && q.Verb == b.forbids && q.UserAgent != "admin" {
				return fakeapiserver.Fault{Status: 403}
			}
			return fakeapiserver.Fault{}
		}})
		defer b.api.Close()
		if _, err := b.api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.start()
		story(t, b)
		b.stop()
	})
}

// start is that of a nodestatus, which sees the Node.
func (b *bench) start() {
	client := b.api.Client()
	b.Keeper = New(Config{NodeName: "n1", Nodes: client.CoreV1().Nodes(), ConfigMaps: client.CoreV1(), Events: b, Epoch: 7, Note: func(text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.note = text
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
	b.Saw(b.api.Node("n1"))
}

// annotate sets an annotation of the Node, which is seen.
func (b *bench) annotate(value string) {
	b.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: value}}})
	if err != nil {
		b.t.Fatal(err)
	}
	if value == "" {
		patch = []byte(`{"metadata":{"annotations":{"` + Annotation + `":null}}}`)
	}
	if _, err := b.api.Admin().CoreV1().Nodes().Patch(b.t.Context(), "n1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.Saw(b.api.Node("n1"))
}

func (b *bench) put(name, key, text string) {
	b.t.Helper()
	maps := b.api.Admin().CoreV1().ConfigMaps("ns")
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: text}}
	_, err := maps.Get(b.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		_, err = maps.Update(b.t.Context(), m, metav1.UpdateOptions{})
	} else {
		_, err = maps.Create(b.t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// frames are what a subscriber gets.
func (b *bench) frames() (next func(within time.Duration) *watch.Frame[string, Document]) {
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(cancel)
	frames := make(chan watch.Frame[string, Document], 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sub, err := b.Subscribe(ctx)
		if err != nil {
			return
		}
		defer sub.Close()
		for {
			frame, err := sub.Next(ctx)
			if err != nil {
				return
			}
			frames <- frame
		}
	}()
	stop := b.stop
	b.stop = func() { cancel(); <-done; stop() }
	return func(within time.Duration) *watch.Frame[string, Document] {
		select {
		case f := <-frames:
			return &f
		case <-time.After(within):
			return nil
		}
	}
}

func TestWhatTheNodeNamesIsToldAndItsChangesAre(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		next := b.frames()
		if f := next(time.Minute); f == nil || !f.Snapshot || len(f.Changed) != 0 {
			t.Errorf("nothing is assigned: %+v", f)
		}
		b.put("c", "kubelet", "one")
		b.put("other", "x", "another's")
		b.annotate("ns/c")
		if f := next(time.Second); f == nil || f.Changed[""].Text != "one" || f.Changed[""].Name != "c" || f.Changed[""].ResourceVersion == "" {
			t.Errorf("the first one: %+v", f)
		}
		b.put("c", "kubelet", "two")
		b.put("other", "x", "another's, too")
		if f := next(time.Second); f == nil || f.Changed[""].Text != "two" {
			t.Errorf("its change: %+v", f)
		}
		b.annotate("ns/other/x")
		if f := next(time.Second); f == nil || f.Changed[""].Text != "another's, too" || f.Changed[""].Key != "x" {
			t.Errorf("another ConfigMap: %+v", f)
		}
		if f := next(time.Hour); f != nil {
			t.Errorf("something nobody changed: %+v", f)
		}
		b.api.DropWatches()
		b.put("other", "x", "after a gap")
		if f := next(10 * time.Second); f == nil || f.Changed[""].Text != "after a gap" {
			t.Errorf("after the watch broke: %+v", f)
		}
		b.annotate("")
		if f := next(time.Second); f == nil || len(f.Changed) != 0 || len(f.Removed) != 1 {
			t.Errorf("taken away: %+v", f)
		}
		if said := b.said(); len(said) > 0 {
			t.Errorf("%q", said)
		}
	})
}

func TestWhatCannotBeReadChangesNothingAndIsSaidOnce(t *testing.T) {
	for name, story := range map[string]struct {
		do   func(b *bench)
		want string
	}{
		"is not there": {func(b *bench) { b.annotate("ns/none") }, "ConfigMap ns/none, which the annotation polylet.dev/configuration names, is not there"},
		"no such key":  {func(b *bench) { b.annotate("ns/c/none") }, `has no key "none" in its data, but ["kubelet"]`},
		"no name":      {func(b *bench) { b.annotate("/etc/passwd") }, "give it namespace/name of a ConfigMap"},
		"was deleted": {func(b *bench) {
			_ = b.api.Admin().CoreV1().ConfigMaps("ns").Delete(b.t.Context(), "c", metav1.DeleteOptions{})
		}, "ns/c, which"},
		"may not be read": {func(b *bench) {
			b.mu.Lock()
			b.forbids = "get"
			b.mu.Unlock()
			b.put("d", "kubelet", "x")
			b.annotate("ns/d")
		}, "a RoleBinding for the group system:nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				b.put("c", "kubelet", "one")
				b.annotate("ns/c")
				next := b.frames()
				for f := next(time.Minute); f != nil && f.Changed[""].Text != "one"; f = next(time.Minute) {
				}
				story.do(b)
				if f := next(time.Hour); f != nil {
					t.Errorf("what was assigned does not stay: %+v", f)
				}
				said := b.said()
				if len(said) != 1 || !strings.HasPrefix(said[0], "ConfigurationNotRead: ") || !strings.Contains(said[0], story.want) {
					t.Errorf("said %q, want %q", said, story.want)
				}
				if got := b.api.Node("n1").Annotations[errorAnnotation]; !strings.Contains(got, story.want) {
					t.Errorf("the Node says %q", got)
				}
				b.mu.Lock()
				b.forbids = ""
				b.mu.Unlock()
				b.put("c", "kubelet", "two")
				b.annotate("ns/c")
				if f := next(2 * time.Minute); f == nil || f.Changed[""].Text != "two" {
					t.Errorf("mended: %+v", f)
				}
				time.Sleep(time.Minute)
				if got, set := b.api.Node("n1").Annotations[errorAnnotation]; set {
					t.Errorf("mended, and the Node says %q", got)
				}
			})
		})
	}
}

// As kubeadm's own Role allows.
func TestOneThatMayNotBeWatchedIsReadAgain(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.forbids = "watch"
		b.put("c", "kubelet", "one")
		b.annotate("ns/c")
		time.Sleep(time.Hour)
		next := b.frames()
		next(time.Minute)
		before := b.api.Calls()
		b.put("c", "kubelet", "two")
		if f := next(2 * time.Minute); f == nil || f.Changed[""].Text != "two" {
			t.Errorf("%+v", f)
		}
		time.Sleep(time.Hour)
		calls := 0
		for name, n := range b.api.Calls() {
			if strings.Contains(name, "configmaps") {
				calls += n - before[name]
			}
		}
		if calls > 200 {
			t.Errorf("%d calls in an hour", calls)
		}
	})
}

// An apiserver whose etcd was restored from before takes a watch from a version that its
// data have not come to, and sends nothing.
func TestAConfigMapThatWentBackWithTheClusterIsTold(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.put("c", "kubelet", "before")
		b.annotate("ns/c")
		next := b.frames()
		until := func(text string) {
			t.Helper()
			for f := next(10 * time.Second); ; f = next(10 * time.Second) {
				if f == nil {
					t.Fatalf("%q is not told", text)
				}
				if f.Changed[""].Text == text {
					return
				}
			}
		}
		until("before")
		backup := b.api.Backup()
		for range 20 {
			b.put("c", "kubelet", "later")
		}
		until("later")
		time.Sleep(time.Minute)
		b.api.Restore(backup, false)
		until("before")
		b.put("c", "kubelet", "after")
		until("after")
	})
}

// A ConfigMap's own version is as old as its last change: an apiserver that was started
// since then knows nothing of what came after it, and says so for as long as it is asked.
func TestAConfigMapThatHasNotChangedForLongIsFollowedAtOnce(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.put("c", "kubelet", "one")
		b.annotate("ns/c")
		next := b.frames()
		for f := next(time.Minute); f != nil && f.Changed[""].Text != "one"; f = next(time.Minute) {
		}
		b.api.Compact()
		b.api.DropWatches()
		time.Sleep(30 * time.Minute)
		b.put("c", "kubelet", "two")
		if f := next(time.Second); f == nil || f.Changed[""].Text != "two" {
			t.Errorf("its change: %+v", f)
		}
	})
}

func TestWhatHasBecomeOfItStandsOnTheNode(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		annotations := func() map[string]string {
			time.Sleep(10 * time.Second)
			return b.api.Node("n1").Annotations
		}
		if got := annotations(); len(got) != 0 {
			t.Errorf("before anything is said: %v", got)
		}
		b.Tell(Stands{Assigned: "ns/c@2", Active: "ns/c@1", LastKnownGood: "ns/c@1", Error: strings.Repeat("long ", 1000)})
		got := annotations()
		if got[assignedAnnotation] != "ns/c@2" || got[activeAnnotation] != "ns/c@1" || got[goodAnnotation] != "ns/c@1" || len(got[errorAnnotation]) != longest {
			t.Errorf("%v", got)
		}
		b.stop()
		b.start() // it has not been told yet
		if got := annotations(); got[assignedAnnotation] != "ns/c@2" || got[errorAnnotation] == "" {
			t.Errorf("after a restart: %v", got)
		}
		b.api.Partition(fakeapiserver.Refuse)
		b.Tell(Stands{Assigned: "ns/c@3", Active: "ns/c@3"})
		time.Sleep(10 * time.Minute)
		b.api.Heal()
		time.Sleep(2 * time.Minute)
		if got := annotations(); got[assignedAnnotation] != "ns/c@3" || got[activeAnnotation] != "ns/c@3" || got[goodAnnotation] != "" || got[errorAnnotation] != "" {
			t.Errorf("after the apiserver was away: %v", got)
		}
		b.Tell(Stands{Assigned: "ns/c@3", Active: "ns/c@3", Waits: "until noon"})
		if got, noted := annotations(), b.lastNote(); got[waitsAnnotation] != "until noon" || noted != "until noon" {
			t.Errorf("what waits: %v, noted %q", got, noted)
		}
		b.Tell(Stands{Assigned: "ns/c@3", Active: "ns/c@3"})
		if got, noted := annotations(), b.lastNote(); got[waitsAnnotation] != "" || noted != "" {
			t.Errorf("what waits no more: %v, noted %q", got, noted)
		}
		before := len(b.api.Writes())
		b.Tell(Stands{Assigned: "ns/c@3", Active: "ns/c@3"})
		b.Saw(b.api.Node("n1"))
		annotations()
		if n := len(b.api.Writes()) - before; n != 0 {
			t.Errorf("%d writes of what stands there", n)
		}
	})
}

func TestTheAnnotationNamesAConfigMapAndNothingElse(t *testing.T) {
	for text, want := range map[string]reference{
		"kube-system/kubelet-config": {"kube-system", "kubelet-config", "kubelet"},
		"a/b.c/d.yaml":               {"a", "b.c", "d.yaml"},
		"b":                          {},
		"a/b/c/d":                    {},
		"../b":                       {},
		"a/..":                       {},
		"a/b/..":                     {},
		"A/b":                        {},
		"a/":                         {},
	} {
		got, err := parse(text)
		if got != want || (err == nil) != (want != reference{}) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}
