package sim

import (
	"context"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// mounter is the way to the mounts, which outlive podsync as the kernel's do.
type mounter struct {
	*life
	*mount.Fake
}

func (m mounter) mount(call, target string, do func() error) error {
	return m.through(call+" "+target, func() error {
		err := do()
		if err == nil {
			m.w.judge.mounted(call, target)
		}
		return err
	})
}

func (m mounter) Tmpfs(target string, size int64) error {
	return m.mount("tmpfs", target, func() error { return m.Fake.Tmpfs(target, size) })
}

func (m mounter) Huge(target string, page, size int64) error {
	return m.mount("huge", target, func() error { return m.Fake.Huge(target, page, size) })
}

func (m mounter) Bind(source, target string) error {
	return m.mount("bind", target, func() error { return m.Fake.Bind(source, target) })
}

func (m mounter) Device(ctx context.Context, device, target, filesystem string, options []string) error {
	return m.mount("device", target, func() error { return m.Fake.Device(ctx, device, target, filesystem, options) })
}

func (m mounter) Release(file string) error {
	return m.through("release "+file, func() error { return m.Fake.Release(file) })
}

func (m mounter) Restrict(target string, options []string) error {
	return m.through("restrict "+target, func() error { return m.Fake.Restrict(target, options) })
}

func (m mounter) Unmount(target string) error {
	return m.through("unmount "+target, func() error {
		if s := m.w.sabotage; s != nil && s.unmount != nil && !s.unmount(target) {
			return nil
		}
		return m.Fake.Unmount(target)
	})
}

// furnished checks that a container starts with what its pod keeps in memory, and the
// volumes of its claims, mounted, also after a restart of the machine.
func (j *judge) furnished(tr fakecri.Transition, f *facts) {
	j.equipped(tr, f)
	for _, v := range f.sub.pod.Spec.Volumes {
		kind, name := "", v.Name
		switch {
		case v.PersistentVolumeClaim != nil && v.Name == "local":
			kind, name = "kubernetes.io~local-volume", "of-"+v.PersistentVolumeClaim.ClaimName
		case v.Secret != nil:
			kind = "kubernetes.io~secret"
		case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory:
			kind = "kubernetes.io~empty-dir"
		default:
			continue
		}
		if m, _ := j.w.mounts.Mounted(filepath.Join(j.w.dir, "root", "pods", tr.PodUID, "volumes", kind, name)); !m {
			j.violationLocked("container %s of pod %s was started though its volume %s is not mounted", tr.Name, tr.Pod, v.Name)
		}
	}
}

// mounted checks that a mount has an owner: a pod that was asked for.
func (j *judge) mounted(call, target string) {
	rest, below := strings.CutPrefix(target, filepath.Join(j.w.dir, "root", "pods")+"/")
	uid, _, _ := strings.Cut(rest, "/")
	if of := j.w.deviceAt(target); of != "" {
		uid, below = of, true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.tell("MOUNT", "call", call, "target", rest)
	if !below || j.owners[uid] == nil {
		j.violationLocked("the %s mount on %s has no owner", call, target)
	}
	if j.unboundLocked(target) {
		j.violationLocked("the %s mount on %s is of a volume whose claim is not bound", call, target)
	}
}
