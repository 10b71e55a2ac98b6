package volume

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/downward"
	"github.com/polylet/polylet/services/podsync/internal/storage/atomicwriter"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// contentMode is the mode of a directory whose files podsync writes.
const contentMode = 0o777

// defaultFileMode is what the apiserver fills in; for static pods nobody does.
const defaultFileMode = int32(0o644)

// mostContent is how much the files of one volume may take together, in bytes: a spec
// may name an annotation of 256 KiB, or a key of 1 MiB, thirty thousand times.
const mostContent = 32 << 20

// contents are the volumes whose files podsync writes.
type contents struct{ *Set }

// Setup writes the files, or brings them up to date.
func (c contents) Setup(ctx context.Context, r Request) (Made, error) {
	path, refresh, err := c.content(ctx, r.Pod, r.Volume, r.Dir, r.mounts)
	return Made{Path: path, Refresh: refresh}, err
}

// Refresh brings them up to date.
func (c contents) Refresh(ctx context.Context, r Request) (Made, error) { return c.Setup(ctx, r) }

// Teardown removes them.
func (c contents) Teardown(ctx context.Context, v Remains) error {
	return unmountAndRemove(ctx, c.deps.Mounter, v.Dir)
}

// content makes a volume whose files podsync writes, or brings them up to date.
func (s *Set) content(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string, mounts func() *mountIndex) (string, time.Time, error) {
	files, refresh, err := s.files(ctx, pod, v)
	written := false
	defer func() { s.end(pod.UID, v.Name, written) }()
	if err != nil {
		return s.contentBefore(v, dir), time.Time{}, err
	}
	if err := files.Validate(); err != nil {
		return s.contentBefore(v, dir), time.Time{}, podstate.VolumeSpec.Wrap(err)
	}
	if err := s.grow(pod.UID, v.Name, files.Directories()*page); err != nil {
		return s.contentBefore(v, dir), time.Time{}, err
	}
	if err := s.contentDir(pod, v, dir); err != nil {
		return "", time.Time{}, err
	}
	nested, nestedErr := s.makeNested(mounts(), v, dir, files)
	w := atomicwriter.Writer{Dir: dir, Keep: nested}
	if group := ownership.Of(pod); group != nil {
		w.Finish = func(fresh string) error { return ownership.Change{Group: group, ReadOnly: true}.Apply(ctx, fresh) }
	}
	if _, err = w.Write(files); err != nil {
		return "", time.Time{}, err
	}
	written = true
	return dir, refresh, nestedErr
}

// contentBefore is the directory of a volume that holds what was written for this pod
// before, perhaps by a previous run: content is there whole or not at all. Empty when
// there is none.
func (s *Set) contentBefore(v *v1.Volume, dir string) string {
	if inMemory(v) {
		if mounted, err := s.deps.Mounter.Mounted(dir); err != nil || !mounted {
			return ""
		}
	}
	if !atomicwriter.Written(dir) {
		return ""
	}
	return dir
}

// contentDir makes the directory, on a tmpfs for what may be secret.
func (s *Set) contentDir(pod *v1.Pod, v *v1.Volume, dir string) error {
	if !inMemory(v) {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return nil
		}
		return makeDir(dir, contentMode)
	}
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := makeDir(dir, contentMode); err != nil {
		return err
	}
	return s.deps.Mounter.Tmpfs(dir, s.memorySize(pod, nil))
}

// files computes what the volume holds, and when that should be done again
// because of a token's age. It counts as being made until its end is told.
func (s *Set) files(ctx context.Context, pod *v1.Pod, v *v1.Volume) (atomicwriter.Payload, time.Time, error) {
	s.begin(pod.UID, v.Name)
	b := &builder{set: s, pod: pod, volume: v.Name, files: atomicwriter.Payload{}, left: mostContent}
	var err error
	switch {
	case v.ConfigMap != nil:
		src := v.ConfigMap
		b.mode = modeOr(src.DefaultMode)
		err = b.configMap(ctx, src.Name, src.Items, src.Optional)
	case v.Secret != nil:
		src := v.Secret
		b.mode = modeOr(src.DefaultMode)
		err = b.secret(ctx, src.SecretName, src.Items, src.Optional)
	case v.DownwardAPI != nil:
		b.mode = modeOr(v.DownwardAPI.DefaultMode)
		err = b.downward(v.DownwardAPI.Items)
	default:
		b.mode = modeOr(v.Projected.DefaultMode)
		err = b.projected(ctx, v.Projected.Sources)
	}
	if err == nil {
		err = b.full
	}
	if err == nil && b.left < 0 {
		err = podstate.VolumeAsSaid.Wrap(fmt.Errorf("its files take more than %d MiB together; name fewer items, or spread them over several volumes", mostContent>>20))
	}
	return b.files, b.refresh, err
}

func modeOr(mode *int32) int32 {
	if mode == nil {
		return defaultFileMode
	}
	return *mode
}

// builder collects the files of one volume.
type builder struct {
	set     *Set
	pod     *v1.Pod
	volume  string
	mode    int32
	files   atomicwriter.Payload
	refresh time.Time
	// left is what of mostContent is left; negative when it is too much.
	left int
	// full says that it is too much for the pod; nil while it is not.
	full error
}

// put adds a file, and nothing more once it is too much.
func (b *builder) put(path string, data []byte, mode *int32) {
	m := b.mode
	if mode != nil {
		m = *mode
	}
	b.add(path, atomicwriter.File{Data: data, Mode: uint32(m)})
}

func (b *builder) add(path string, file atomicwriter.File) {
	size := func(f atomicwriter.File) int { return max(len(f.Data), page) }
	if b.left -= len(file.Data); b.over() {
		return
	}
	more := size(file)
	if before, there := b.files[path]; there {
		more -= size(before)
	}
	if b.full = b.set.grow(b.pod.UID, b.volume, more); b.full == nil {
		b.files[path] = file
	}
}

func isOptional(optional *bool) bool { return optional != nil && *optional }

func (b *builder) configMap(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) error {
	cm, err := b.set.deps.Objects.ConfigMap(ctx, b.pod.Namespace, name)
	if apierrors.IsNotFound(err) && isOptional(optional) {
		return nil
	}
	if err != nil {
		return FromCluster(err)
	}
	const lacks = "configmap references non-existent config key"
	if len(items) > 0 {
		copied := map[string][]byte{} // a key may be chosen often
		return b.keys(func(key string) ([]byte, bool) {
			if raw, ok := cm.BinaryData[key]; ok {
				return raw, true
			}
			text, ok := cm.Data[key]
			if copied[key] == nil {
				copied[key] = []byte(text)
			}
			return copied[key], ok
		}, items, isOptional(optional), lacks)
	}
	for key, text := range cm.Data {
		if _, binary := cm.BinaryData[key]; !binary && !b.over() {
			b.put(key, []byte(text), nil)
		}
	}
	b.all(cm.BinaryData)
	return nil
}

func (b *builder) secret(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) error {
	secret, err := b.set.deps.Objects.Secret(ctx, b.pod.Namespace, name)
	if apierrors.IsNotFound(err) && isOptional(optional) {
		return nil
	}
	if err != nil {
		return FromCluster(err)
	}
	if len(items) == 0 {
		b.all(secret.Data)
		return nil
	}
	return b.keys(func(key string) ([]byte, bool) { raw, ok := secret.Data[key]; return raw, ok }, items, isOptional(optional), "references non-existent secret key")
}

// all puts all keys where they are called.
func (b *builder) all(data map[string][]byte) {
	for key, raw := range data {
		b.put(key, raw, nil)
	}
}

// over says that it is too much already: what else is named, of which there may be tens of
// thousands, need not be read.
func (b *builder) over() bool { return b.left < 0 || b.full != nil }

// keys puts the chosen keys at their paths; lacks is said of one that is not there. Of an
// object that ten thousands of sources name, no more is looked at than these.
func (b *builder) keys(find func(key string) ([]byte, bool), items []v1.KeyToPath, optional bool, lacks string) error {
	for _, item := range items {
		if b.over() {
			return nil // files says so
		}
		raw, ok := find(item.Key)
		if !ok && optional {
			continue
		}
		if !ok {
			return podstate.VolumeObjectMissing.Wrap(fmt.Errorf("%s: %s", lacks, item.Key))
		}
		b.put(item.Path, raw, item.Mode)
	}
	return nil
}

func (b *builder) downward(items []v1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		if b.over() {
			return nil // files says so
		}
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = downward.Field(b.pod, item.FieldRef.FieldPath, downward.Node{})
		case item.ResourceFieldRef != nil:
			value, err = downward.Resource(b.pod, nil, item.ResourceFieldRef, b.set.allocatable())
		default:
			err = fmt.Errorf("file %q has neither fieldRef nor resourceFieldRef", item.Path)
		}
		if err != nil {
			return podstate.VolumeSpec.Wrap(err)
		}
		b.put(item.Path, []byte(value), item.Mode)
	}
	return nil
}
