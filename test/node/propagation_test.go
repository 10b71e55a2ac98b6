package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// sharing is a container that has a directory of the host at /shared, with mounts that come
// and go there as mode says.
func sharing(like corev1.Container, name string, mode corev1.MountPropagationMode) corev1.Container {
	like.Name = name
	like.VolumeMounts = []corev1.VolumeMount{{Name: "shared", MountPath: "/shared", MountPropagation: &mode}}
	if mode == corev1.MountPropagationBidirectional {
		like.SecurityContext = &corev1.SecurityContext{Privileged: ptr(true)}
	}
	return like
}

// TestMountsReachOtherContainersAsTheirVolumesSay: what a container with a Bidirectional
// volume mounts there, others see whose volume is HostToContainer or Bidirectional, and the
// host, also in another pod; what is mounted on the host, they see, too. A volume that says
// None sees nothing of either, and what is mounted in a HostToContainer volume stays there.
func TestMountsReachOtherContainersAsTheirVolumesSay(t *testing.T) {
	h := build(t, plan{})
	disk := h.disk("shared")
	pod := func(name string, modes map[string]corev1.MountPropagationMode) *corev1.Pod {
		p := shellPod(name, idle)
		p.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk}}}}
		like := p.Spec.Containers[0]
		p.Spec.Containers = nil
		for _, container := range []string{"both", "follows", "none"} {
			if mode, has := modes[container]; has {
				p.Spec.Containers = append(p.Spec.Containers, sharing(like, container, mode))
			}
		}
		return p
	}
	modes := map[string]corev1.MountPropagationMode{
		"both": corev1.MountPropagationBidirectional, "follows": corev1.MountPropagationHostToContainer, "none": corev1.MountPropagationNone,
	}
	byHost, byPod := filepath.Join(disk, "by-host"), filepath.Join(disk, "by-pod")
	h.must(errors.Join(os.Mkdir(byHost, 0o755), os.Mkdir(byPod, 0o755), os.Mkdir(filepath.Join(disk, "by-follower"), 0o755)))
	h.Cleanup(func() {
		for _, dir := range []string{byHost, byPod} {
			_ = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
	})
	there := func(dir string) {
		t.Helper()
		_, err := os.Stat(filepath.Join(dir, "f"))
		h.must(err)
	}
	one, other := pod("one", modes), pod("other", modes)
	// Without this capability nobody mounts; a follower's mounts are to stay its own.
	one.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: ptr(true)}
	h.create(one, other)
	h.waitReady("one", 2*time.Minute)
	h.waitReady("other", 2*time.Minute)
	in := func(pod, container, script string) {
		t.Helper()
		h.prints("", "exec", pod, "-c", container, "--", "sh", "-c", script)
	}
	in("one", "both", "mount -t tmpfs tmpfs /shared/by-pod && touch /shared/by-pod/f")
	h.must(unix.Mount("tmpfs", byHost, "tmpfs", 0, "size=1m"))
	h.must(os.WriteFile(filepath.Join(byHost, "f"), nil, 0o600))
	in("one", "follows", "mount -t tmpfs tmpfs /shared/by-follower && touch /shared/by-follower/f")

	there(byPod)
	for _, at := range []string{"one", "other"} {
		for _, container := range []string{"both", "follows"} {
			in(at, container, "test -e /shared/by-pod/f && test -e /shared/by-host/f")
		}
		in(at, "none", "! test -e /shared/by-pod/f && ! test -e /shared/by-host/f")
		in(at, "both", "! test -e /shared/by-follower/f")
	}
	in("other", "both", "umount /shared/by-pod")
	in("one", "follows", "! test -e /shared/by-pod/f")
	there(byHost)
	for _, name := range []string{"one", "other"} {
		h.delete(name)
	}
	for _, name := range []string{"one", "other"} {
		h.waitGone(name, 2*time.Minute)
	}
	there(byHost) // what the host has mounted stays
}
