package collector

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
)

const (
	// heldFor is how long who asks about one volume gets what was found for another.
	heldFor = 5 * time.Second
	// heldShare bounds for how much of the time they are looked for: how many there are is for
	// the authors of pods to say.
	heldShare = 20
)

// Held is what a pod's containers have in files without a name that lie in a volume of its, as
// was found a moment ago: many may ask at once. Nothing is known while it is not to be looked yet.
func (c *Collector) Held(ctx context.Context, v disk.Volume) (out disk.Tree) {
	c.held.Lock()
	defer c.held.Unlock()
	if began := time.Now(); !began.Before(c.held.next) {
		found, _, err := c.Unlinked(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Files without a name are not known", "err", err)
		}
		now := time.Now()
		c.held.found, c.held.until, c.held.next = found, now.Add(heldFor), now.Add(max(heldFor, heldShare*now.Sub(began)))
	}
	if !time.Now().Before(c.held.until) {
		return disk.Tree{}
	}
	for _, u := range c.held.found {
		if u.PodUID == v.PodUID {
			in, counted := u.Volumes[v.Name], u.Counted[v.Name]
			out.Bytes, out.Inodes = out.Bytes+in.Bytes+counted.Bytes, out.Inodes+in.Count+counted.Count
		}
	}
	return out
}

// heldOpen is what was found of files without a name.
type heldOpen struct {
	sync.Mutex
	found []Unlinked
	// until is as long as that counts, and next when they may be looked for again.
	until, next time.Time
}

// counts takes in what the figure of a counted volume has of a file, as far as that has files
// without a name, and says what it has not. One of which it is not known where it lies may be in
// any of its holder's: nobody is evicted for what counts twice.
func (h *holding) counts(f process.Unlinked) (rest Files) {
	rest = Files{f.Bytes, 1}
	name, known := h.mounted[f.Mount]
	if !known {
		name = roomiest(h.counted)
	}
	room, counted := h.counted[name]
	if !counted {
		return rest
	}
	has := Files{min(f.Bytes, room.Bytes), min(1, room.Count)}
	h.counted[name] = Files{room.Bytes - has.Bytes, room.Count - has.Count}
	if !known {
		name = ""
	}
	if has != (Files{}) {
		addTo(&h.found.Counted, name, has)
	}
	return Files{rest.Bytes - has.Bytes, rest.Count - has.Count}
}

// roomiest is the volume that has the most room.
func roomiest(counted map[string]Files) (most string) {
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		if most == "" || counted[name].Bytes > counted[most].Bytes {
			most = name
		}
	}
	return most
}

// unsure are the pods, by UID, with volumes that their filesystem counts, or directories whose
// figures are of another age than others.
func unsure(pods []inventory.PresentPod, figures map[string]disk.Measured) (out []string) {
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Volumes, func(v inventory.Volume) bool { return v.Counted }) ||
			slices.ContainsFunc(directories([]inventory.PresentPod{pod}), func(d disk.Directory) bool { return figures[d.Path].Slow }) {
			out = append(out, pod.Sandbox.Pod.UID)
		}
	}
	return out
}

func addTo(all *map[string]Files, name string, more Files) {
	if *all == nil {
		*all = map[string]Files{}
	}
	has := (*all)[name]
	(*all)[name] = Files{has.Bytes + more.Bytes, has.Count + more.Count}
}

// countedVolumes are the volumes of pods, by UID, whose last figures have files without a name,
// with what they have in such.
func countedVolumes(view inventory.View, figures *disk.Trees) map[string]map[string]Files {
	out := map[string]map[string]Files{}
	for uid, pod := range view.Volumes {
		for _, v := range pod.Volumes {
			last, _ := figures.Last(v.HostPath)
			if last.Unnamed == (disk.Tree{}) {
				continue
			}
			if out[uid] == nil {
				out[uid] = map[string]Files{}
			}
			out[uid][v.Name] = Files{last.Unnamed.Bytes, last.Unnamed.Inodes}
		}
	}
	return out
}
