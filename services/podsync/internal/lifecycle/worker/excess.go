package worker

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// dead is a dead container that is not the newest of its name.
type dead struct {
	uid types.UID
	*podstate.Container
}

// deadOf counts the dead containers of all pods, and lists those that are not the
// newest of their name, by name and newest first.
func deadOf(pods map[types.UID]podstate.Observed) (total int, units [][]dead) {
	for uid, o := range pods {
		seen := map[string]int{} // the unit of a name; below zero while none of it is dead
		for i := range o.Containers {
			c := &o.Containers[i]
			at, later := seen[c.Name]
			if !later {
				at, seen[c.Name] = -1, -1
			}
			if !c.Ended() {
				continue
			}
			total++
			if at < 0 {
				at, seen[c.Name] = len(units), len(units)
				units = append(units, nil)
			}
			if later {
				units[at] = append(units[at], dead{uid, c})
			}
		}
	}
	return total, units
}

// excess names the dead containers, by pod, that go for no more than most to
// stay on the node: each container of a pod may keep its part, one at least, and
// when that is still too many the oldest go. The newest instance of each
// container stays whatever most is, for what happens next is decided from it.
// Those that were named before go first: they may be on their way already.
// Source: the flag --maximum-dead-containers.
func excess(pods map[types.UID]podstate.Observed, most int, before map[types.UID]map[string]bool) map[types.UID]map[string]bool {
	out := map[types.UID]map[string]bool{}
	total, units := deadOf(pods)
	if most < 0 || total <= most {
		return out
	}
	drop := func(d dead) {
		if out[d.uid] == nil {
			out[d.uid] = map[string]bool{}
		}
		out[d.uid][d.ID] = true
		total--
	}
	var rest []dead
	part := max(1, most/max(1, len(units)))
	for _, unit := range units {
		stay := min(part, len(unit))
		rest = append(rest, unit[:stay]...)
		for _, d := range unit[stay:] {
			drop(d)
		}
	}
	named := func(d dead) int {
		if before[d.uid][d.ID] {
			return 0
		}
		return 1
	}
	slices.SortFunc(rest, func(a, b dead) int {
		return cmp.Or(named(a)-named(b), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, d := range rest {
		if total <= most {
			break
		}
		drop(d)
	}
	return out
}

// thinLocked tells the workers which of their dead containers are too many on the node.
func (r *Registry) thinLocked() {
	if r.cfg.MaxDead == nil {
		return
	}
	now := excess(r.observed, *r.cfg.MaxDead, r.excess)
	for uid, w := range r.pods {
		ids := now[uid]
		if !maps.Equal(ids, r.excess[uid]) {
			w.inbox.tell(func(in *told) { in.excess = &ids })
		}
	}
	r.excess = now
}
