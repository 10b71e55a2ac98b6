package worker

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
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
