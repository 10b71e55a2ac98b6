package disk

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// layersTime is how long all layers may be weighed, and layerTime how long one: who
	// has millions of files takes nobody else's time.
	layersTime = 2 * time.Second
	layerTime  = 500 * time.Millisecond
	// longestMounts bounds what is read of the mounts.
	longestMounts = 64 << 20
)

// Layers weighs writable layers where they lie, for the runtime does so seldom. It is
// done for those only of which it is certain where that is: overlays that the runtime has
// mounted by a container's id, with a directory of its own for what is written. Safe for
// concurrent use; the zero value weighs none.
type Layers struct {
	// Mounts are those of the runtime: a file as /proc/self/mountinfo.
	Mounts string

	mu sync.Mutex
	// under way: nothing more is begun while a filesystem does not answer.
	underWay bool
}

// Weights are what was found of layers, by container.
type Weights map[string]weight

// Beside adds to what the runtime said of layers what was found since. It is not changed
// itself.
func (w Weights) Beside(said map[string]Usage) map[string]Usage {
	out := make(map[string]Usage, len(said)+len(w))
	maps.Copy(out, said)
	for id, found := range w {
		if now, ok := found.beside(said[id]); ok {
			out[id] = now
		}
	}
	return out
}

// weight is what was found of a layer.
type weight struct {
	Usage
	// partly: there is more.
	partly bool
}

// beside is the weight where the runtime said something before; not ok: that is to stay.
// Of what was counted in part it is at least what the runtime said.
func (w weight) beside(said Usage) (Usage, bool) {
	switch {
	case w.Time.Before(said.Time):
		return said, false
	case !w.partly:
		return w.Usage, true
	case w.Bytes <= said.Bytes && w.Inodes <= said.Inodes:
		return said, false
	}
	w.Bytes, w.Inodes = max(w.Bytes, said.Bytes), max(w.Inodes, said.Inodes)
	return w.Usage, true
}

// Weigh weighs the layers of these containers, as far as there is time. The runtime's last
// account says where layers lie.
func (l *Layers) Weigh(parent context.Context, account RuntimeUsage, containers []string) Weights {
	l.mu.Lock()
	busy := l.underWay || l.Mounts == ""
	l.underWay = true
	l.mu.Unlock()
	if busy {
		return nil
	}
	ctx, cancel := context.WithTimeout(parent, layersTime)
	defer cancel()
	var mu sync.Mutex
	found, done := Weights{}, make(chan struct{})
	go func() {
		defer close(done)
		for _, u := range l.uppers(ctx, account, containers) {
			if w, ok := weigh(ctx, u.path); ok {
				mu.Lock()
				found[u.container] = w
				mu.Unlock()
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay = false
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(found)
}

// weigh measures one layer; not ok: nothing is known of it.
func weigh(parent context.Context, path string) (weight, bool) {
	ctx, cancel := context.WithTimeout(parent, layerTime)
	defer cancel()
	out := weight{Usage: Usage{Time: time.Now()}}
	if ctx.Err() != nil {
		return out, false
	}
	tree, err := Walk(ctx, path, nil)
	out.Bytes, out.Inodes, out.partly = tree.Bytes, tree.Inodes, err != nil
	return out, tree.Inodes > 0
}

// upper is where a container's layer is.
type upper struct{ container, path string }

// uppers are those of containers that lie where the runtime says that layers do, those
// with the fewest files first.
func (l *Layers) uppers(ctx context.Context, account RuntimeUsage, containers []string) []upper {
	f, err := os.Open(l.Mounts)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Writable layers are not weighed, but by the runtime", "err", err.Error())
		return nil
	}
	defer f.Close() //nolint:errcheck // It was only read.
	var places []string
	for _, u := range append(slices.Clone(account.Containers), account.Images...) {
		if u.Mountpoint != "" {
			places = append(places, u.Mountpoint)
		}
	}
	all := Uppers(f, places)
	var out []upper
	for _, id := range containers {
		if path := all[id]; path != "" {
			out = append(out, upper{id, path})
		}
	}
	slices.SortStableFunc(out, func(a, b upper) int {
		return cmp.Compare(account.Layers[a.container].Inodes, account.Layers[b.container].Inodes)
	})
	return out
}

// Uppers finds in a mountinfo the directories that overlays write to which are mounted at
// ID/rootfs, by ID. They lie in one of places. An ID that has several has none, and so has
// one with a name that the kernel has to quote: it is to be certain.
// Source: https://docs.kernel.org/filesystems/proc.html, mountinfo
func Uppers(mounts io.Reader, places []string) map[string]string {
	out := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(mounts, longestMounts))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		id, path, ok := overlay(lines.Text())
		if !ok || !slices.ContainsFunc(places, func(place string) bool { return within(path, place) }) {
			continue
		}
		if had, twice := out[id]; twice && had != path {
			path = ""
		}
		out[id] = path
	}
	if lines.Err() != nil {
		return nil
	}
	return out
}

// overlay reads a line of a mountinfo.
func overlay(line string) (id, upper string, ok bool) {
	mount, kind, found := strings.Cut(line, " - ")
	fields, super := strings.Fields(mount), strings.Fields(kind)
	if !found || len(fields) < 5 || len(super) != 3 || super[0] != "overlay" || fields[3] != "/" {
		return "", "", false
	}
	dir, last := filepath.Split(fields[4])
	if id = filepath.Base(dir); last != "rootfs" || strings.Contains(super[2], `\`) {
		return "", "", false
	}
	for option := range strings.SplitSeq(super[2], ",") {
		if value, is := strings.CutPrefix(option, "upperdir="); is {
			if upper != "" {
				return "", "", false
			}
			upper = value
		}
	}
	return id, upper, filepath.IsAbs(upper)
}

// within says whether a path lies below a directory.
func within(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest) && rest != "." && filepath.Clean(path) == path
}
