package criconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/env"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/etchosts"
)

const etcHosts = "/etc/hosts"

// mounts are the container's volumes, its hosts file and its termination log.
func (b *Builder) mounts(ctx context.Context, r Request, c *v1.Container, vars map[string]string) ([]*runtimeapi.Mount, error) {
	var list []*runtimeapi.Mount
	ownHosts, volumes := false, podutil.VolumesByName(r.Pod)
	for i := range c.VolumeMounts {
		m, err := b.mount(ctx, r, c, i, volumes.Find(c.VolumeMounts[i].Name), vars)
		if err != nil {
			return nil, err
		}
		ownHosts = ownHosts || path.Clean(m.ContainerPath) == etcHosts
		list = append(list, m)
	}
	if !ownHosts && (len(r.PodIPs) > 0 || r.Pod.Spec.HostNetwork) {
		file, err := b.writeHosts(r.Pod, r.PodIPs)
		if err != nil {
			return nil, err
		}
		list = append(list, &runtimeapi.Mount{ContainerPath: etcHosts, HostPath: file, SelinuxRelabel: true})
	}
	log, err := b.terminationLog(r.Pod, c)
	if err != nil {
		return nil, err
	}
	if log != nil {
		list = append(list, log)
	}
	return list, nil
}

// mount is the container's i-th volume mount, of the volume source; nil when the pod has
// no such volume.
func (b *Builder) mount(ctx context.Context, r Request, c *v1.Container, i int, source *v1.Volume, vars map[string]string) (*runtimeapi.Mount, error) {
	pod, m := r.Pod, &c.VolumeMounts[i]
	host, ok := b.deps.Volumes.HostPath(pod.UID, m.Name)
	if !ok || source == nil || host == "" && source.Image == nil {
		return nil, fmt.Errorf("%w: volume %q, container %q", errNoVolume, m.Name, c.Name)
	}
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var err error
		switch sub, err = expandSubPath(m.SubPathExpr, vars); {
		case errors.Is(err, errLongPath):
			return nil, fmt.Errorf("the subPathExpr of volumeMount %q of container %q: %w", m.Name, c.Name, err)
		case err != nil:
			return nil, err
		}
	}
	if len(sub) >= unix.PathMax {
		return nil, fmt.Errorf("the subPath of volumeMount %q of container %q: %w", m.Name, c.Name, errLongPath)
	}
	if err := staysInside(sub); err != nil {
		return nil, err
	}
	if source.Image != nil {
		return imageMount(r, m, source, sub)
	}
	itself := podutil.ReadOnly(source)
	readOnly := m.ReadOnly || itself || isContent(source)
	if sub != "" {
		var err error
		if host, err = b.deps.Volumes.SubPath(ctx, pod, c.Name, i, m.Name, sub); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
		}
	}
	propagation, err := propagationOf(m)
	if err != nil {
		return nil, err
	}
	recursive, err := b.recursiveReadOnly(ctx, pod, m)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.Mount{
		ContainerPath: target(m), HostPath: host, Readonly: readOnly, Propagation: propagation,
		RecursiveReadOnly: recursive,
		// No label can be written where nothing can, and a runtime fails at it.
		SelinuxRelabel: !itself && source.HostPath == nil && source.NFS == nil && !b.deps.Volumes.KeepsLabels(pod.UID, m.Name),
	}, nil
}

// errLongPath says that there is no such path.
var errLongPath = fmt.Errorf("it comes to %d bytes or more, and a path has fewer", unix.PathMax)

// staysInside refuses a sub path that leads out of its volume: what a variable
// of subPathExpr holds nobody has checked before.
func staysInside(sub string) error {
	if path.IsAbs(sub) {
		return fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return nil
}

// target is where in the container a volume goes.
func target(m *v1.VolumeMount) string {
	if strings.HasPrefix(m.MountPath, "/") {
		return m.MountPath
	}
	return "/" + m.MountPath
}

// imageMount is the mount of an image volume, which the runtime makes itself.
// Source: KEP-4639; the runtime resolves the sub path inside of the image.
func imageMount(r Request, m *v1.VolumeMount, source *v1.Volume, sub string) (*runtimeapi.Mount, error) {
	ref := r.VolumeRefs[m.Name]
	if ref == "" {
		return nil, fmt.Errorf("the image of volume %q is not present", m.Name)
	}
	return &runtimeapi.Mount{
		ContainerPath: target(m), Readonly: true, ImageSubPath: sub,
		Image: &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: source.Image.Reference},
	}, nil
}

// isContent says whether only podsync writes a volume's files.
func isContent(v *v1.Volume) bool {
	return v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil
}

// expandSubPath expands $(VAR)s; one that is not set, or empty, is an error: what is
// left of the path would be all of the volume, or what others have in it. So is what comes to
// more than a path has.
func expandSubPath(expr string, vars map[string]string) (string, error) {
	missing := ""
	out, err := env.ExpandWithin(expr, unix.PathMax-1, func(name string) (string, bool) {
		value, ok := vars[name]
		if value == "" && missing == "" {
			missing = name
		}
		return value, ok
	})
	if err != nil {
		return "", errLongPath
	}
	if missing != "" {
		return "", fmt.Errorf("cannot expand subPathExpr %q: missing value for %q", expr, missing)
	}
	return out, nil
}

func propagationOf(m *v1.VolumeMount) (runtimeapi.MountPropagation, error) {
	if m.MountPropagation == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *m.MountPropagation {
	case v1.MountPropagationNone, "":
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *m.MountPropagation)
}

// recursiveReadOnly says whether mounts below are read-only too.
func (b *Builder) recursiveReadOnly(ctx context.Context, pod *v1.Pod, m *v1.VolumeMount) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q: recursive read-only mount needs readOnly: true", m.Name)
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q: recursive read-only mount is not compatible with propagation %q", m.Name, *m.MountPropagation)
	}
	handler, err := b.handler(ctx, pod)
	if err != nil {
		return false, err
	}
	supported := false
	if b.deps.Handlers != nil {
		supported = b.deps.Handlers()[handler].GetRecursiveReadOnlyMounts()
	}
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf("volume %q: recursive read-only mount is not supported by the runtime handler %q; use IfPossible or another runtime", m.Name, handler)
		}
		return true, nil
	}
	return false, fmt.Errorf("volume %q: unknown recursive read-only mode %q", m.Name, *m.RecursiveReadOnly)
}

// writeHosts brings the pod's hosts file up to date. It is written in place:
// running containers have this very file mounted.
func (b *Builder) writeHosts(pod *v1.Pod, ips []string) (string, error) {
	var content string
	if pod.Spec.HostNetwork {
		host, err := os.ReadFile(b.cfg.HostsFile)
		if err != nil {
			return "", fmt.Errorf("read the host's own hosts file: %w", err)
		}
		content = etchosts.HostNetworkFile(string(host), pod.Spec.HostAliases)
	} else {
		hostname, domain := etchosts.Name(b.named(pod), b.cfg.ClusterDomain)
		content = etchosts.File(ips, hostname, domain, pod.Spec.HostAliases)
	}
	file := filepath.Join(b.podDir(pod), "etc-hosts")
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file: %w", file, fs.ErrInvalid)
	}
	if holds(file, content) {
		return file, nil
	}
	if err := rewrite(file, content); err != nil {
		return "", fmt.Errorf("write the pod's hosts file: %w", err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		return "", fmt.Errorf("open the pod's hosts file to all users: %w", err)
	}
	b.written(file)
	return file, nil
}

// rewrite gives a file that containers have mounted another content. Nothing here
// waits for a lease that one of them has on it: it may keep it as long as it likes.
func rewrite(file, content string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("a container has a lease on it, and is told to give it up: %w", err)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// written says that containers may write to a file from now on.
func (b *Builder) written(file string) {
	if b.deps.Written != nil {
		b.deps.Written(file)
	}
}

// holds says whether a file has this content. Containers write to it and may
// make it as large as they like, so no more is read than can be right.
func holds(file, content string) bool {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(content)) {
		return false
	}
	have, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && string(have) == content
}
