package disk

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// longestMounts bounds what is read of the mounts.
const longestMounts = 64 << 20

// Layers weighs writable layers where they lie, for the runtime does so seldom. It is
// done for those only of which it is certain where that is: overlays that the runtime has
// mounted by a container's id, with a directory of its own for what is written. Nothing is
// done that nobody asks for. Safe for concurrent use.
type Layers struct {
	mounts string
	trees  *Trees
}

// Layer is a container's.
type Layer struct {
	// Container is the id, Namespace whose it is.
	Container, Namespace string
	// Over is since when nothing is written to it; zero while something may be.
	Over time.Time
}

// enough is how new its weight has to be for who wants it as it is since a time.
func (l Layer) enough(since time.Time) time.Time {
	if !l.Over.IsZero() && l.Over.Before(since) {
		return l.Over
	}
	return since
}

// NewLayers returns Layers that weigh nothing until Run runs. mounts are those of the
// runtime: a file as /proc/self/mountinfo.
func NewLayers(mounts string, cfg TreesConfig) *Layers {
	return &Layers{mounts: mounts, trees: NewTrees(cfg)}
}

// Run weighs until ctx is done.
func (l *Layers) Run(ctx context.Context) error { return l.trees.Run(ctx) }

// Weights are what was found of layers, by container.
type Weights map[string]weight

// weight is what was found of a layer.
type weight struct {
	Usage
	// partly: there may be more.
	partly bool
}

// Weigh weighs those layers that were not since a time, until ctx is done; pressing is as of
// Trees.Renew. The runtime's last account says where layers lie.
func (l *Layers) Weigh(ctx context.Context, account RuntimeUsage, layers []Layer, since time.Time, pressing bool) Weights {
	paths := l.uppers(ctx, account)
	var dirs []Directory
	for _, layer := range layers {
		if path := paths[layer.Container]; path != "" {
			dirs = append(dirs, Directory{Path: path, Namespace: layer.Namespace})
		}
	}
	have, late := l.trees.Renew(ctx, dirs, since, pressing)
	out := Weights{}
	for _, layer := range layers {
		path := paths[layer.Container]
		if m, known := have[path]; known && path != "" {
			out[layer.Container] = weight{Usage{Time: m.Time, Bytes: m.Bytes, Inodes: m.Inodes}, late[path]}
		}
	}
	return out
}

// Beside adds to what the runtime said of layers what was found since. It is not changed
// itself. late are the containers of which not all is known since a time: there may be more
// than is said, or nothing is.
func (w Weights) Beside(said map[string]Usage, layers []Layer, since time.Time) (out map[string]Usage, late map[string]bool) {
	out, late = make(map[string]Usage, len(said)), map[string]bool{}
	for id, usage := range said {
		out[id] = usage
	}
	for _, layer := range layers {
		id := layer.Container
		usage, known := said[id]
		found, weighed := w[id]
		if weighed {
			usage = found.beside(usage)
		}
		if known || weighed {
			out[id] = usage
		}
		if usage.Time.Before(layer.enough(since)) {
			late[id] = true
		}
	}
	return out, late
}

// beside is the weight where the runtime said something before, the zero value is nothing.
// What was counted in part is at least so much and as old as what the runtime said, unless
// the runtime said it since.
func (w weight) beside(said Usage) Usage {
	switch {
	case w.Time.Before(said.Time):
		return said
	case w.partly:
		said.Bytes, said.Inodes = max(w.Bytes, said.Bytes), max(w.Inodes, said.Inodes)
		return said
	}
	return w.Usage
}

// uppers are the directories of all layers that lie where the runtime says that they do.
func (l *Layers) uppers(ctx context.Context, account RuntimeUsage) map[string]string {
	out, _ := l.read(ctx, account)
	return out
}

// Devices are the containers of the layers that lie where the runtime says that they do,
// by the number of their overlays, as 0:50.
func (l *Layers) Devices(ctx context.Context, account RuntimeUsage) map[string]string {
	_, out := l.read(ctx, account)
	return out
}

func (l *Layers) read(ctx context.Context, account RuntimeUsage) (uppers, devices map[string]string) {
	f, err := os.Open(l.mounts)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Where writable layers lie is not known", "err", err.Error())
		return nil, nil
	}
	defer f.Close() //nolint:errcheck // It was only read.
	var places []string
	for _, u := range append(slices.Clone(account.Containers), account.Images...) {
		if u.Mountpoint != "" {
			places = append(places, u.Mountpoint)
		}
	}
	return Overlays(f, places)
}

// Overlays finds in a mountinfo the directories that overlays write to which are mounted at
// ID/rootfs, by ID. They lie in one of places. An ID that has several has none, and so has
// one with a name that the kernel has to quote: it is to be certain. devices are the IDs by
// the overlays' numbers.
// Source: https://docs.kernel.org/filesystems/proc.html, mountinfo
func Overlays(mounts io.Reader, places []string) (uppers, devices map[string]string) {
	uppers, devices = map[string]string{}, map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(mounts, longestMounts))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		o, ok := overlayOf(lines.Text())
		if !ok || !slices.ContainsFunc(places, func(place string) bool { return within(o.upper, place) }) {
			continue
		}
		devices[o.device] = o.id
		if had, twice := uppers[o.id]; twice && had != o.upper {
			o.upper = ""
		}
		uppers[o.id] = o.upper
	}
	if lines.Err() != nil {
		return nil, nil
	}
	return uppers, devices
}

// overlay is mounted for a container, its number is device, and it writes to upper.
type overlay struct{ id, device, upper string }

// overlayOf reads a line of a mountinfo.
func overlayOf(line string) (out overlay, ok bool) {
	mount, kind, found := strings.Cut(line, " - ")
	fields, super := strings.Fields(mount), strings.Fields(kind)
	if !found || len(fields) < 5 || len(super) != 3 || super[0] != "overlay" || fields[3] != "/" {
		return out, false
	}
	dir, last := filepath.Split(fields[4])
	out.id, out.device = filepath.Base(dir), fields[2]
	if last != "rootfs" || strings.Contains(super[2], `\`) {
		return out, false
	}
	for option := range strings.SplitSeq(super[2], ",") {
		if value, is := strings.CutPrefix(option, "upperdir="); is {
			if out.upper != "" {
				return out, false
			}
			out.upper = value
		}
	}
	return out, filepath.IsAbs(out.upper)
}

// within says whether a path lies below a directory.
func within(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest) && rest != "." && filepath.Clean(path) == path
}
