package worker

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// namedFirst says which mirrors may go once all orphans were named.
type namedFirst struct {
	orphans
	atAllKnown string
}

func (n *namedFirst) AllKnown() { n.atAllKnown = n.String() }

// What a list has named is looked at afterwards, and the sources may have been heard by
// then: nobody knows yet that such a pod has ended.
func TestAPodThatIsStillToBeLookedAtIsNamedBeforeAllOrphansAreKnown(t *testing.T) {
	mirrors := &namedFirst{orphans: orphans{of: map[types.UID]bool{}}}
	r := New(Config{Sources: []string{"api"}}, Deps{Mirrors: mirrors})
	r.begin = func(*held) {}
	r.life = t.Context()
	r.Ready("api")
	r.Observe("static", podstate.Observed{StaticOf: "kube-system/etcd"})
	r.RuntimeSeen()
	if mirrors.atAllKnown != "[static]" {
		t.Errorf("the orphans are %s when all are said to be known", mirrors.atAllKnown)
	}
	r.Observe("static", podstate.Observed{Known: true})
	if left := mirrors.String(); left != "[]" {
		t.Errorf("nothing is left of it, and yet it is named: %s", left)
	}
}

// shownPods are those that others are told of.
type shownPods struct{ of map[types.UID]podcache.Pod }

func (s shownPods) Set(p podcache.Pod)   { s.of[p.Pod.UID] = p }
func (s shownPods) Remove(uid types.UID) { delete(s.of, uid) }

// Who asks which pods there are, to end them as the machine goes down or the least of
// them for its memory, takes those that are shown then for all.
func TestAllPodsAreShownBeforeAllAreSaidToBeKnown(t *testing.T) {
	pods := shownPods{map[types.UID]podcache.Pod{}}
	r := New(Config{Sources: []string{"api"}}, Deps{Pods: pods})
	r.begin = func(*held) {} // none has come to work yet
	r.life = t.Context()
	pod := newPod("p", sized("1", "10Mi"))
	pod.Status.Phase = v1.PodRunning
	r.Set(pod, "api")
	r.Ready("api")
	if r.SourcesReady().IsZero() {
		t.Fatal("not all are known")
	}
	if got, shown := pods.of[pod.UID]; !shown || got.Status.Phase != v1.PodRunning || got.Static {
		t.Errorf("shown: %v, %+v", shown, got)
	}
}

// Whoever is told that there is no such pod takes it for one that has ended, and does not
// ask again.
func TestAPodThatIsShownBeforeAnybodyWorksIsNotSaidToBeGone(t *testing.T) {
	r := New(Config{Sources: []string{"api"}}, Deps{Pods: shownPods{map[types.UID]podcache.Pod{}}})
	pod := newPod("p", sized("1", "10Mi"))
	r.Set(pod, "api")
	if _, err := r.Stop(t.Context(), pod.UID, podstate.Stop{Reason: "Evicted"}, nil); !errors.Is(err, ErrNotAllKnown) {
		t.Errorf("%v", err)
	}
}
