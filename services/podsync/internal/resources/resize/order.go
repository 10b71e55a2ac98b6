package resize

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Waiting is a pod whose resize has not been allocated.
type Waiting struct {
	// Desired is the pod as it is wanted; Allocated the same with what it has.
	Desired, Allocated *v1.Pod
	// Since is when it first had to wait; zero for one that is new.
	Since time.Time
}

// Sort puts first whose turn comes first: who asks for no more than it has, then the
// higher priority, then Guaranteed before others, then who has waited longest.
// Source: KEP-1287, "priority of resize requests".
func Sort[T any](list []T, waiting func(T) Waiting) {
	type turn struct {
		what T
		Waiting
		increases, guaranteed bool // looked up once: they are sums over all containers
	}
	turns := make([]turn, len(list))
	for i, what := range list {
		w := waiting(what)
		turns[i] = turn{what, w, Increases(w.Desired, w.Allocated), podutil.QOS(w.Desired) == v1.PodQOSGuaranteed}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(
			first(!a.increases, !b.increases),
			cmp.Compare(priority(b.Desired), priority(a.Desired)),
			first(a.guaranteed, b.guaranteed),
			first(!a.Since.IsZero(), !b.Since.IsZero()),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Desired.UID, b.Desired.UID),
		)
	})
	for i := range turns {
		list[i] = turns[i].what
	}
}

// first puts the one for which it is true before the other.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
