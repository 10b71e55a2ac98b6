package eviction

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Late are pods that may have more on disks than their figures say: in layers, or in
// volumes and logs, not all was measured since a time, or of Holders not all open files were
// looked at, which may be removed ones.
type Late struct{ Layers, Directories, Holders map[types.UID]bool }

// With adds the pods of which a layer's figure is older than a time; those of an older
// stats, which does not say itself who is late, are to the second. That of a container that
// has ended may be as old as its end.
func (l Late) With(figures Figures, since time.Time) Late {
	layers := maps.Clone(l.Layers)
	if layers == nil {
		layers = map[types.UID]bool{}
	}
	for uid, pod := range figures {
		for i := range pod.Containers {
			if olderLayer(&pod.Containers[i], since, false) {
				layers[types.UID(uid)] = true
			}
		}
	}
	return Late{layers, l.Directories, l.Holders}
}

// of says whether a pod is, in what counts.
func (l Late) of(uid types.UID, p parts) bool {
	return p.layers && l.Layers[uid] || (p.logs || p.volumes) && l.Directories[uid] || (p.layers || p.volumes) && l.Holders[uid]
}

// Unsure is a pod because of which it is not sure that the first of those that were ranked
// for what a signal says has to go: itself, which may have less, or one that would go first
// if it has more than its figures say, or has no figures yet; nil when it is sure. What is used of the filesystem
// beside the first one's is all that another can have.
func Unsure(by pressure.Signal, layout threshold.Layout, ranked []Candidate, late Late) *v1.Pod {
	if len(ranked) == 0 || ranked[0].Not != "" {
		return nil
	}
	first, p := ranked[0], partsOf(by.Name, layout)
	if late.of(first.Pod.UID, p) {
		return first.Pod
	}
	left := whole(by.Capacity-min(by.Available, by.Capacity)) - first.Usage
	for _, c := range ranked[1:] {
		if c.Not != "" && !c.Unknown || !late.of(c.Pod.UID, p) {
			continue
		}
		most := max(left, c.Usage) - c.Request
		switch {
		case !first.Exceeds, c.Priority < first.Priority && most > 0, c.Priority == first.Priority && most > first.Usage-first.Request:
			return c.Pod
		}
	}
	return nil
}
