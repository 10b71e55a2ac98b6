package imagegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/reference"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

// record is what is known of an image.
type record struct {
	image *runtimeapi.Image
	names []string // as in canonical
	// firstSeen since the start, and lastUsed, which is zero for never.
	firstSeen, lastUsed time.Time
}

// since is from when on the image is unused.
func (r *record) since() time.Time {
	if r.lastUsed.After(r.firstSeen) {
		return r.lastUsed
	}
	return r.firstSeen
}

// pass looks at the images and removes some. Run alone has it.
type pass struct {
	c      *Collector
	began  time.Time
	images map[string]*record // by id
	looked bool
	// blank: the last look has shown an image without an id.
	blank bool
	// removed: an image was, and what is remembered of it is still there.
	removed bool
}

// look brings what is known of the images up to date, and returns those that no
// container has and that may go otherwise, longest unused first.
func (p *pass) look(ctx context.Context) ([]*record, error) {
	before := time.Now()
	images, err := p.c.deps.Runtime.ListImages(ctx)
	partial := (*inventory.Partial)(nil)
	if err != nil && !errors.As(err, &partial) {
		return nil, fmt.Errorf("list images: %w", err)
	}
	inUse, err := p.inUse(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := p.c.deps.Runtime.SandboxImage(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the sandboxes' image: %w", err)
	}
	s := p.judge(images, inUse, canonical(sandboxes))
	if partial == nil {
		p.prune(ctx, before, s.known)
	} else {
		p.keepUnseen(s.known, s.names)
	}
	p.images, p.looked, p.blank = s.known, true, s.blank
	p.c.forgetUses(s.names)
	slices.SortFunc(s.unused, func(a, b *record) int {
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), a.firstSeen.Compare(b.firstSeen), strings.Compare(a.image.GetId(), b.image.GetId()))
	})
	return s.unused, nil
}

// inUse are the names and ids of the images that containers have.
func (p *pass) inUse(ctx context.Context) (map[string]bool, error) {
	containers, err := p.c.deps.Runtime.ListContainers(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	mounted, err := p.mounted(ctx, containers)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, name := range mounted {
		out[canonical(name)] = true
	}
	for _, c := range containers {
		for _, name := range []string{c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage(), c.GetImageRef(), c.GetImageId()} {
			out[canonical(name)] = true
		}
	}
	delete(out, "")
	return out, nil
}

// seen is what a look has shown.
type seen struct {
	known  map[string]*record // by id
	names  map[string]bool    // of all of them
	unused []*record          // in no order
	blank  bool               // there is one without an id
}

// judge says which images nobody uses. Those of the sandboxes, and such as the runtime
// keeps, stay though nobody does.
func (p *pass) judge(images []*runtimeapi.Image, inUse map[string]bool, sandboxes string) seen {
	now := time.Now()
	first := now
	if !p.looked {
		first = p.began
	}
	s := seen{known: map[string]*record{}, names: map[string]bool{}}
	for _, image := range images {
		if image.GetId() == "" {
			p.skip(image, &s.blank)
			continue
		}
		r := p.images[image.GetId()]
		if r == nil {
			r = &record{firstSeen: first}
		}
		r.image, r.names = image, namesOf(image)
		s.known[image.GetId()] = r
		for _, name := range r.names {
			s.names[name] = true
		}
		if anyOf(r.names, inUse) {
			r.lastUsed = now
			continue
		}
		if last := p.c.lastUse(r.names); last.After(r.lastUsed) {
			r.lastUsed = last
		}
		if !image.GetPinned() && !slices.Contains(r.names, sandboxes) {
			s.unused = append(s.unused, r)
		}
	}
	return s
}

// mounted are the images that containers have as volumes, as they were resolved: the name
// in the pod's spec may be another image's by now. Lists do not say that; asked for is
// each container of a pod that has such volumes, or that is not known. Before all pods
// are, no image goes, and nobody is asked.
func (p *pass) mounted(ctx context.Context, containers []*runtimeapi.Container) (names []string, err error) {
	if !p.c.deps.known() {
		return nil, nil
	}
	mounts := map[string]bool{} // by pod
	for _, pod := range p.c.deps.Pods.List() {
		mounts[string(pod.Pod.UID)] = slices.ContainsFunc(pod.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.Image != nil })
	}
	for _, c := range containers {
		if may, known := mounts[c.GetLabels()[cri.LabelPodUID]]; known && !may {
			continue
		}
		st, err := p.c.deps.Runtime.ContainerStatus(ctx, c.GetId())
		switch {
		case cri.IsNotFound(err):
			continue // it went meanwhile
		case err != nil:
			return nil, fmt.Errorf("ask for the images that container %s has as volumes: %w", c.GetId(), err)
		}
		for _, m := range st.GetMounts() {
			if m.GetImage() != nil {
				names = append(names, m.GetImage().GetImage())
			}
		}
	}
	return names, nil
}

// keepUnseen goes on with what is remembered of images that a list may be missing.
func (p *pass) keepUnseen(known map[string]*record, names map[string]bool) {
	for id, r := range p.images {
		if known[id] != nil {
			continue
		}
		known[id] = r
		for _, name := range r.names {
			names[name] = true
		}
	}
}

// skip tells of an image without an id: nothing can be done with it.
func (p *pass) skip(image *runtimeapi.Image, blank *bool) {
	if !p.blank && !*blank {
		p.c.deps.Events.Node(v1.EventTypeWarning, "InvalidImageID", fmt.Sprintf("The runtime shows an image without an id, which is not collected: %q %q", image.GetRepoTags(), image.GetRepoDigests()))
	}
	*blank = true
}

// prune forgets what is remembered of images that went since the last look.
func (p *pass) prune(ctx context.Context, before time.Time, known map[string]*record) {
	if p.c.deps.Records == nil {
		return
	}
	gone := !p.looked || p.removed
	for id := range p.images {
		gone = gone || known[id] == nil
	}
	if !gone {
		return
	}
	if err := p.c.deps.Records.Prune(slices.Collect(maps.Keys(known)), before); err != nil {
		klog.FromContext(ctx).Error(err, "Could not forget with which credentials images were pulled that are gone")
		return
	}
	p.removed = false
}

// collect removes images that are too old, and then as many as the disk needs.
func (p *pass) collect(ctx context.Context) error {
	known := p.c.deps.known() // before anything is looked at: what is asked depends on it
	unused, err := p.look(ctx)
	if err != nil || !known {
		return err
	}
	unused, err = p.byAge(ctx, unused)
	if !p.c.byUsage() {
		return err
	}
	return errors.Join(err, p.bySpace(ctx, unused))
}

// byAge removes what has not been used for MaxAge, and returns the rest.
func (p *pass) byAge(ctx context.Context, unused []*record) (rest []*record, err error) {
	most := p.c.cfg.MaxAge
	if most <= 0 || time.Since(p.began) <= most {
		return unused, nil
	}
	for _, r := range unused {
		if time.Since(r.since()) <= most {
			rest = append(rest, r)
			continue
		}
		_, failed := p.remove(ctx, r, "age")
		err = errors.Join(err, failed)
	}
	return rest, err
}

// bySpace removes images until the disk is used to LowPercent only.
func (p *pass) bySpace(ctx context.Context, unused []*record) error {
	directory, err := p.c.deps.Runtime.ImageDirectory(ctx)
	if err != nil {
		return fmt.Errorf("ask where images lie: %w", err)
	}
	if directory == "" {
		return nil // nothing that could fill up, as far as the runtime knows
	}
	disk, err := p.c.deps.Disk(directory)
	if err != nil {
		return fmt.Errorf("look how full %s is, where the images lie; podsync must be able to see it: %w", directory, err)
	}
	if disk.CapacityBytes == 0 {
		p.c.deps.Events.Node(v1.EventTypeWarning, "InvalidDiskCapacity", errCapacity.Error())
		return errCapacity
	}
	used := disk.usedPercent()
	if used < p.c.cfg.HighPercent {
		return nil
	}
	want := disk.missing(p.c.cfg.LowPercent)
	klog.FromContext(ctx).Info("The images' disk is filling up; unused images are removed",
		"directory", directory, "usedPercent", used, "highPercent", p.c.cfg.HighPercent, "wantBytes", want)
	freed, err := p.free(ctx, unused, want, func() uint64 {
		now, err := p.c.deps.Disk(directory)
		if err != nil || now.AvailableBytes < disk.AvailableBytes {
			return 0
		}
		return now.AvailableBytes - disk.AvailableBytes
	})
	if freed >= want {
		return err
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting unused images: freed %d of %d bytes. Enlarge the disk or delete files that are not needed.",
		used, resource.NewQuantity(int64(min(disk.CapacityBytes, math.MaxInt64)), resource.BinarySI), freed, want)
	p.c.deps.Events.Node(v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.Join(errors.New(message), err)
}

// reclaimWithin is reclaim until whoever asked has left or life ends.
func (p *pass) reclaimWithin(life context.Context, r request) (Reclaimed, error) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	return p.reclaim(ctx, r.gone)
}

// reclaim removes all that is unused; gone is called after each.
func (p *pass) reclaim(ctx context.Context, gone func()) (freed Reclaimed, err error) {
	known := p.c.deps.known()
	unused, err := p.look(ctx)
	if ctx.Err() != nil {
		return freed, fmt.Errorf("look for unused images: %w", context.Cause(ctx))
	}
	if err != nil {
		return freed, err
	}
	if !known {
		return freed, ErrNotAllKnown
	}
	for i, r := range unused {
		removed, failed := p.remove(ctx, r, "space")
		if removed {
			freed.Images++
			freed.Bytes += r.image.GetSize()
			gone()
		}
		switch {
		case ctx.Err() != nil && (failed != nil || i+1 < len(unused)):
			return freed, fmt.Errorf("remove unused images: %d of %d were looked at, the last was %s: %w", i+1, len(unused), r.image.GetId(), context.Cause(ctx))
		case failed != nil:
			freed.Failed = append(freed.Failed, failed.Error())
		}
	}
	return freed, nil
}

// free removes images in their order until want bytes are free. What was freed
// is what the disk says or the images' sizes, whichever is more: sizes may be
// those of the packed image, and a disk may tell late.
func (p *pass) free(ctx context.Context, unused []*record, want uint64, measured func() uint64) (freed uint64, err error) {
	var sizes uint64
	for _, r := range unused {
		if freed >= want || ctx.Err() != nil {
			break
		}
		if time.Since(r.firstSeen) < p.c.cfg.MinAge {
			continue
		}
		gone, failed := p.remove(ctx, r, "space")
		err = errors.Join(err, failed)
		if gone {
			sizes += r.image.GetSize()
			freed = max(sizes, measured())
		}
	}
	return freed, errors.Join(err, ctx.Err())
}

// remove removes one image, unless a pod wants it by now.
func (p *pass) remove(ctx context.Context, r *record, reason string) (bool, error) {
	if anyOf(r.names, p.wanted()) {
		r.lastUsed = time.Now()
		return false, nil
	}
	if err := p.c.deps.Runtime.RemoveImage(ctx, r.image.GetId()); err != nil {
		return false, fmt.Errorf("remove image %s: %w", r.image.GetId(), err)
	}
	delete(p.images, r.image.GetId())
	p.removed = true
	if p.c.removed != nil {
		p.c.removed.WithLabelValues(reason).Inc()
	}
	klog.FromContext(ctx).Info("Removed an unused image", "image", r.image.GetId(), "names", r.image.GetRepoTags(),
		"bytes", r.image.GetSize(), "reason", reason, "unused", time.Since(r.since()).Round(time.Second).String())
	return true, nil
}

// wanted are the images of all pods that have not ended.
func (p *pass) wanted() map[string]bool {
	out := map[string]bool{}
	for _, pod := range p.c.deps.Pods.List() {
		if podutil.TerminalPhase(pod.Status.Phase) {
			continue
		}
		spec := &pod.Pod.Spec
		for i := range spec.InitContainers {
			out[canonical(spec.InitContainers[i].Image)] = true
		}
		for i := range spec.Containers {
			out[canonical(spec.Containers[i].Image)] = true
		}
		for i := range spec.EphemeralContainers {
			out[canonical(spec.EphemeralContainers[i].Image)] = true
		}
		for i := range spec.Volumes {
			if image := spec.Volumes[i].Image; image != nil {
				out[canonical(image.Reference)] = true
			}
		}
	}
	delete(out, "")
	return out
}

func anyOf(names []string, set map[string]bool) bool {
	return slices.ContainsFunc(names, func(name string) bool { return set[name] })
}

// namesOf are all names by which an image may be meant.
func namesOf(image *runtimeapi.Image) []string {
	out := []string{canonical(image.GetId())}
	for _, name := range append(slices.Clone(image.GetRepoTags()), image.GetRepoDigests()...) {
		out = append(out, canonical(name))
	}
	return out
}

// canonical completes an image's name as a pull would, so that names can be
// compared; ids lose their algorithm.
func canonical(name string) string {
	if id := strings.TrimPrefix(name, "sha256:"); len(id) == 64 && !strings.ContainsAny(id, "/:@.") {
		return id
	}
	parsed, err := reference.Parse(name)
	if err != nil {
		return name
	}
	return parsed.Pulled()
}

// usedPercent is how full the disk is.
func (d Disk) usedPercent() int {
	available := min(d.AvailableBytes, d.CapacityBytes)
	return 100 - int(float64(available)*100/float64(d.CapacityBytes))
}

// missing is how many bytes must become available for the disk to be used to
// this percentage.
func (d Disk) missing(percent int) uint64 {
	want := uint64(float64(d.CapacityBytes) * float64(100-percent) / 100)
	if want <= d.AvailableBytes {
		return 0
	}
	return want - d.AvailableBytes
}

func statfs(path string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Disk{}, err
	}
	return Disk{CapacityBytes: st.Blocks * uint64(st.Bsize), AvailableBytes: st.Bavail * uint64(st.Bsize)}, nil
}
