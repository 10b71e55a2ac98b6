package podsync

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	s := &Service{}
	version := func(uid, v string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: v}}
	}
	for _, c := range []struct{ uid, version, want string }{{"a", "9", "9"}, {"a", "10", "10"}, {"a", "9", "10"}, {"b", "3", "3"}} {
		s.storeNode(version(c.uid, c.version))
		if got := s.node.Load().ResourceVersion; got != c.want {
			t.Errorf("after %s of %s: %s, want %s", c.version, c.uid, got, c.want)
		}
	}
}
