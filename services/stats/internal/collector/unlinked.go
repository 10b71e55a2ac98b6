package collector

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

const (
	// unlinkedTime is how long all open files of all containers may be looked at, and
	// turn how long those of one at most before those of the others: it decides how many it
	// has.
	unlinkedTime = 2 * time.Second
	turn         = 100 * time.Millisecond
	// settling is how long it may be looked then who has given files away.
	settling = time.Second
	// mostSeen bounds of how many processes of a container the mounts are read, and
	// mostMounts how many are kept: it may make as many as it likes.
	mostSeen   = 16
	mostMounts = 4096
	// mostStrays bounds of how many files it is found out who has given them away, leastStrays
	// of how many of each container at least.
	mostStrays  = 4096
	leastStrays = 64
)

// Unlinked are files of a container that are open and have no name any more.
type Unlinked struct {
	PodUID, Container string
	// Root lie on the filesystem of the root directory, Layer in the container's
	// writable layer.
	Root, Layer Files
	// Volumes are those of Root that lie in volumes of the pod's own, by volume.
	Volumes map[string]Files
	// Counted are those that lie in volumes which their filesystem counts, and nowhere else
	// here: these volumes' figures have them. Of those by "" it is not known in which.
	Counted map[string]Files
	// Largest is what the largest of them was called.
	Largest string
	// Incomplete: there was no time for all of its files.
	Incomplete bool
}

// Files is how many there are and what lies in them.
type Files struct{ Bytes, Count uint64 }

func (f *Files) add(bytes uint64) { f.Bytes, f.Count = f.Bytes+bytes, f.Count+1 }

// Unlinked finds them in all containers. A file counts once: for the container in whose
// layer or volume it lies, if that is known, whoever was given it; else for the first that
// holds it. False: the time was over before all were looked at.
func (c *Collector) Unlinked(parent context.Context) (out []Unlinked, all bool, err error) {
	ctx, cancel := context.WithTimeout(parent, unlinkedTime)
	defer cancel()
	root, err := process.DeviceOf(c.cfg.RootDir)
	if err != nil {
		return nil, false, fmt.Errorf("look at %s: %w", c.cfg.RootDir, err)
	}
	containers, err := c.deps.Meter.Processes()
	if err != nil {
		return nil, false, fmt.Errorf("list the containers' processes: %w", err)
	}
	counted := countedVolumes(c.deps.Names.View(), c.deps.Directories)
	look := &look{proc: c.deps.Proc, root: root, seen: map[process.Inode]bool{}, strayed: map[process.Inode]bool{}, layers: map[string]*holding{}}
	for _, k := range containers {
		h := &holding{Processes: k, found: Unlinked{PodUID: k.Pod.UID, Container: k.Container}, mounted: map[uint64]string{}, counted: counted[k.Pod.UID]}
		look.all, look.layers[k.ID] = append(look.all, h), h
	}
	if c.deps.Layers != nil {
		look.devices = c.deps.Layers.Devices(ctx, c.deps.Runtime.Last())
	}
	look.everywhere(ctx)
	settleCtx, cancelSettle := context.WithTimeout(parent, settling)
	defer cancelSettle()
	look.settle(settleCtx)
	all = true
	for _, h := range look.all {
		all = all && !h.found.Incomplete
		if h.found.Largest != "" || h.found.Incomplete || len(h.found.Counted) > 0 {
			out = append(out, h.found)
		}
	}
	return out, all, nil
}

// look is one at all open files.
type look struct {
	proc process.Proc
	root process.Device
	all  []*holding
	// layers are the containers by id, devices the ids by the numbers of their overlays.
	layers  map[string]*holding
	devices map[string]string
	seen    map[process.Inode]bool
	// strays are files on the root directory's filesystem that were opened on a mount that
	// their holder does not see: another has given them to it.
	strays []stray
	// strayed has them.
	strayed map[process.Inode]bool
}

type stray struct {
	process.Unlinked
	holder *holding
}

// holding is a container with what was found of it.
type holding struct {
	sampler.Processes
	found   Unlinked
	largest uint64
	// mounted are the mounts of its processes, as far as they were read: of so many. Of each
	// it has the volume of the pod's own that it is of; empty where it is none.
	mounted map[uint64]string
	read    int
	// counted are its pod's volumes that are, with what their figures have yet in files without a
	// name; all containers of the pod have the same.
	counted map[string]Files
	// strays are how many of its files are.
	strays int
}

// everywhere looks at the files of all containers.
func (l *look) everywhere(ctx context.Context) {
	inTurns(ctx, l.all, func(h *holding, limit time.Duration) bool {
		h.found.Incomplete = !l.at(ctx, h, limit)
		return !h.found.Incomplete
	})
}

// inTurns has each looked at for a short while, so that all have a turn whatever those
// before them have, and then those of which there was no time for all for longer and
// longer, until ctx is done.
func inTurns[T any](ctx context.Context, left []T, at func(x T, limit time.Duration) (all bool)) {
	if len(left) == 0 {
		return
	}
	for limit := min(turn, unlinkedTime/time.Duration(2*len(left))); len(left) > 0; limit *= 4 {
		var late []T
		for _, x := range left {
			if !at(x, limit) {
				late = append(late, x)
			}
		}
		if left = late; ctx.Err() != nil {
			return
		}
	}
}

// at looks at the files of one; false: not at all of them.
func (l *look) at(parent context.Context, h *holding, limit time.Duration) (all bool) {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	for _, pid := range h.PIDs {
		if !l.proc.Unlinked(ctx, pid, func(f process.Unlinked) { l.see(ctx, h, pid, f) }) {
			return false
		}
	}
	return true
}

// see takes in what a process holds open.
func (l *look) see(ctx context.Context, h *holding, pid int, f process.Unlinked) {
	known := l.strayed[f.Inode]
	if f.Inode.Device == l.root && (known || h.strays < l.straysOf()) && !l.seen[f.Inode] && !h.sees(ctx, l.proc, pid, f.Mount) {
		if known {
			return
		}
		h.strays++
		l.strays, l.strayed[f.Inode] = append(l.strays, stray{f, h}), true
		return
	}
	l.take(f, h)
}

// straysOf is how many there may be of each container, so that nobody takes others' room.
func (l *look) straysOf() int { return max(leastStrays, mostStrays/max(1, len(l.all))) }

// settle counts the strays, when it is known what their givers hold themselves.
func (l *look) settle(ctx context.Context) {
	for _, s := range l.strays {
		l.take(s.Unlinked, l.giver(ctx, s))
	}
}

// sees says whether a mount is one of the container's, as far as that is known.
func (h *holding) sees(ctx context.Context, proc process.Proc, pid int, mount uint64) bool {
	if _, seen := h.mounted[mount]; seen || mount == 0 {
		return true
	}
	if h.read >= mostSeen || ctx.Err() != nil {
		return false
	}
	h.learn(proc, pid)
	_, seen := h.mounted[mount]
	return seen
}

// learn reads the mounts of one of its processes.
func (h *holding) learn(proc process.Proc, pid int) {
	h.read++
	proc.Mounted(pid, func(number uint64, dir string) bool {
		if len(h.mounted) >= mostMounts {
			return false
		}
		h.mounted[number] = h.volumeOf(dir)
		return true
	})
}

// volumeOf is the volume of the pod's own that a directory is of; empty when it is none.
func (h *holding) volumeOf(dir string) string {
	_, rest, in := strings.Cut(dir, "/pods/"+h.Pod.UID+"/volumes/")
	if !in || h.Pod.UID == "" {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "/") // The plugin.
	name, _, _ := strings.Cut(rest, "/")
	return strings.Clone(name) // The line that it is of may be long.
}

// giver is the container in whose volume a stray file lies, if there is one, else its holder.
func (l *look) giver(ctx context.Context, s stray) *holding {
	for _, h := range l.all {
		if h.read == 0 && len(h.PIDs) > 0 && ctx.Err() == nil {
			h.learn(l.proc, h.PIDs[0])
		}
		if h.mounted[s.Mount] != "" {
			return h
		}
	}
	return s.holder
}

// take counts a file of a container, once.
func (l *look) take(f process.Unlinked, h *holding) {
	if l.seen[f.Inode] {
		return
	}
	id, layered := l.devices[fmt.Sprintf("%d:%d", f.Inode.Device.Major, f.Inode.Device.Minor)]
	switch {
	case layered && !f.Writable:
		return // It may be the image's.
	case layered:
		if owner := l.layers[id]; owner != nil {
			h = owner
		}
		h.found.Layer.add(f.Bytes)
	case f.Inode.Device == l.root:
		rest := h.counts(f)
		if l.seen[f.Inode] = true; rest == (Files{}) {
			return
		}
		h.found.Root = Files{h.found.Root.Bytes + rest.Bytes, h.found.Root.Count + rest.Count}
		if name := h.mounted[f.Mount]; name != "" {
			addTo(&h.found.Volumes, name, rest)
		}
	case f.Root:
		h.found.Layer.add(f.Bytes)
	default:
		return // It lies on another volume.
	}
	l.seen[f.Inode] = true
	if f.Bytes >= h.largest {
		h.largest, h.found.Largest = f.Bytes, f.Path
	}
}
