package podsync

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

func TestTheKernelSaysWhichAppArmorProfilesItHas(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	yes, no, none := file("yes", "Y\n"), file("no", "N\n"), filepath.Join(dir, "none")
	loaded := file("profiles", "cri-containerd.apparmor.d (enforce)\na name (of mine) (complain)\n")
	for _, c := range []struct {
		enabled, profiles string
		off               bool
		want              []string
	}{
		{yes, loaded, false, []string{"a name (of mine)", "cri-containerd.apparmor.d"}},
		{yes, none, false, nil},
		{no, loaded, true, nil},
		{none, none, true, nil},
	} {
		off, got := appArmor(c.enabled, c.profiles)
		if names := slices.Sorted(maps.Keys(got)); off != c.off || !slices.Equal(names, c.want) {
			t.Errorf("%s %s: off %v, profiles %v", c.enabled, c.profiles, off, names)
		}
	}
}

func TestTheNodesReadyConditionSaysThatTheMachineGoesDown(t *testing.T) {
	ready := func(status v1.ConditionStatus, message string) *v1.Node {
		n := &v1.Node{}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, Message: message}}
		return n
	}
	for _, c := range []struct {
		node *v1.Node
		want bool
	}{
		{nil, false}, {&v1.Node{}, false}, {ready(v1.ConditionTrue, "kubelet is posting ready status"), false},
		{ready(v1.ConditionFalse, "[container runtime is down]"), false}, {ready(v1.ConditionFalse, "node is shutting down"), true},
	} {
		if got := shuttingDown(c.node); got != c.want {
			t.Errorf("%+v: %v", c.node, got)
		}
	}
}

func TestAnOlderNodeObjectDoesNotReplaceANewerOne(t *testing.T) {
	s := &Service{volumes: volume.New(volume.Config{}, volume.Deps{})}
	version := func(uid, v string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: v}}
	}
	for _, c := range []struct{ uid, version, want string }{{"a", "9", "9"}, {"a", "10", "10"}, {"a", "9", "10"}, {"b", "3", "3"}} {
		before := s.node.Load()
		news := s.storeNode(version(c.uid, c.version))
		if got := s.node.Load(); got.ResourceVersion != c.want || news != (got != before) {
			t.Errorf("after %s of %s: %s, news %v, want %s", c.version, c.uid, got.ResourceVersion, news, c.want)
		}
		if s.storeNode(version(c.uid, c.version)) {
			t.Errorf("%s of %s is news a second time", c.version, c.uid)
		}
	}
}

// A pod that does not match the node in memory waits for a read of the newest
// one, and asks again whenever it is woken.
func TestAnApiserverThatRefusesTheNodeIsNotAskedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		refuses := func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb != "get" || q.Resource != "nodes" {
				return fakeapiserver.Fault{}
			}
			if reads.Add(1) > 1000 {
				t.Error("the node was read more than 1000 times")
				return fakeapiserver.Fault{}
			}
			return fakeapiserver.Fault{Status: http.StatusForbidden}
		}
		api := fakeapiserver.New(fakeapiserver.Config{Faults: refuses})
		startInCluster(t, fakecri.New(fakecri.Config{Images: []string{"app:1"}}), api)
		for _, name := range []string{"a", "b", "c"} {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
				Spec:       v1.PodSpec{NodeName: "n1", NodeSelector: map[string]string{"disk": "fast"}, Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
			}
			if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := reads.Load(); n < 3 || n > 12 {
			t.Errorf("the node was read %d times in 10 s; with a pause that grows from 0.1 s it is 5 to 8", n)
		}
	})
}

func TestTheRuntimesOutageIsNoTimeInWhichPodsCouldEnd(t *testing.T) {
	var o outage
	began := time.Now()
	for _, c := range []struct {
		at, want time.Duration
		away     bool
	}{{10, 10, false}, {20, 0, true}, {100, 0, true}, {101, 1, false}, {130, 30, false}} {
		leaving := map[types.UID]time.Duration{"a": c.at * time.Second}
		o.discount(leaving, c.away, began.Add(c.at*time.Second))
		if leaving["a"] != c.want*time.Second {
			t.Errorf("after %d s, away %v: %v, want %d s", c.at, c.away, leaving["a"], c.want)
		}
	}
}
