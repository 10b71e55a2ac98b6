package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// orphans are the static pods whose mirrors stay though no source knows them.
type orphans struct {
	mu sync.Mutex
	of map[types.UID]bool
}

func (s *orphans) Orphan(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[uid] = true
}

func (s *orphans) Ended(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, uid)
}

func (s *orphans) AllKnown() {}

func (s *orphans) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(s.of)))
}

// A manifest that somebody has broken stops no pod, nor does it when podsync is
// started anew beside it.
func TestWhatRunsOfAStaticPodGoesOnWhileAManifestCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		mirrors := &orphans{of: map[types.UID]bool{}}
		pods := map[string]*v1.Pod{}
		for name, src := range map[string]string{"broken": "file", "changed": "file", "removed": "file", "deleted": "api"} {
			pods[name] = newPod(name, v1.Container{Image: "app:1"})
			pods[name].Annotations = map[string]string{podutil.AnnotationSource: src}
			r.reg.Set(pods[name], src)
		}
		running := func() string {
			var names []string
			for _, s := range r.rt.Snapshot().Sandboxes {
				names = append(names, s.Config.GetMetadata().GetUid())
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		}
		r.until("ready", time.Minute, func() bool {
			for _, p := range pods {
				if !isReady(r.status(p.UID)) {
					return false
				}
			}
			return true
		})
		r.stop()
		r.mirrors = mirrors
		r.start()
		// One is written anew, of one the manifest is broken, and one was taken away.
		next := newPod("changed", v1.Container{Image: "app:1"})
		next.UID, next.Annotations = "uid-next", pods["changed"].Annotations
		r.reg.Set(next, "file")
		r.reg.Doubt("file", true)
		r.reg.Ready("api")
		time.Sleep(10 * time.Minute)
		if got, want := running(), "[uid-broken uid-next uid-removed]"; got != want {
			t.Errorf("while a manifest cannot be read %s run; want %s", got, want)
		}
		if got, want := mirrors.String(), "[uid-broken uid-removed]"; got != want {
			t.Errorf("the mirrors of %s stay; want %s", got, want)
		}
		if !r.reg.InDoubt("ns", "broken") || r.reg.InDoubt("ns", "changed") {
			t.Error("it is not known which pods are in doubt")
		}
		for _, c := range r.rt.Snapshot().Containers {
			if c.Config.GetLabels()[cri.LabelPodUID] == "uid-removed" {
				if err := r.rt.Exit(c.ID, 1, "Error"); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		r.reg.Set(pods["broken"], "file")
		r.reg.Doubt("file", false)
		time.Sleep(10 * time.Minute)
		if got, want := running(), "[uid-broken uid-next]"; got != want {
			t.Errorf("afterwards %s run; want %s", got, want)
		}
		if want := []string{"[ns/broken ns/removed]", "[ns/broken ns/removed (none of its containers runs any more)]", "[ns/removed (none of its containers runs any more)]", "[]"}; !slices.Equal(r.e.inDoubt, want) {
			t.Errorf("in doubt were said to be %q; want %q", r.e.inDoubt, want)
		}
		if r.reg.InDoubt("ns", "broken") {
			t.Error("it is in doubt still")
		}
		for _, tr := range r.rt.History() {
			if tr.PodUID == "uid-broken" && tr.To == fakecri.Exited {
				t.Errorf("the pod was stopped: %+v", tr)
			}
		}
	})
}

// What is left of a static pod keeps its network and its host ports, also when none of
// its containers runs: once a manifest has its name, that is no longer in doubt.
func TestWhatIsLeftOfAStaticPodIsEndedWhenAManifestHasItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}})
		static := map[string]string{podutil.AnnotationSource: "file"}
		old, next := newPod("p", v1.Container{Image: "app:1"}), newPod("p", v1.Container{Image: "app:1"})
		next.UID, old.Annotations, next.Annotations = "uid-next", static, static
		r.reg.Set(old, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(old.UID)) })
		r.stop()
		if err := r.rt.Exit(r.rt.Snapshot().Containers[0].ID, 1, "Error"); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.reg.Doubt("file", true)
		r.reg.Ready("api")
		r.reg.Ready("file")
		time.Sleep(time.Minute)
		if n := len(r.rt.Snapshot().Sandboxes); n != 1 {
			t.Fatalf("while its manifest cannot be read the pod has %d sandboxes", n)
		}
		r.reg.Set(next, "file") // it is corrected, and another cannot be read still
		r.until("ready", time.Minute, func() bool { return isReady(r.status(next.UID)) })
		time.Sleep(time.Minute)
		for _, s := range r.rt.Snapshot().Sandboxes {
			if s.Config.GetMetadata().GetUid() != string(next.UID) {
				t.Errorf("the sandbox of the earlier pod is there still: %s", s.State)
			}
		}
	})
}
