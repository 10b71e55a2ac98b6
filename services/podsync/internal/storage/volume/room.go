package volume

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

const (
	// mostVolumes is how many volumes the containers of a pod may use: a spec of 1.5 MiB names fifty
	// thousand, and each is told to whoever measures the node's volumes, measured, and
	// written into the statistics of all.
	mostVolumes = 512
	// mostMounts is how many mounts the volumes of a namespace's pods may need on the
	// node, a quarter of what the kernel lets one mount namespace have (fs.mount-max):
	// when all are taken, no pod's volume can be mounted, and no container's root.
	mostMounts = 25_000
)

// mountsOf is how many mounts on the node a pod needs for its volumes.
func mountsOf(pod *v1.Pod) (n int) {
	used := claims.Used(pod)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; used[v.Name] && (inMemory(v) || v.CSI != nil || v.NFS != nil || isDisk(v) || ofClaim(v)) {
			n++
		}
	}
	for _, c := range podutil.Containers(pod) {
		for i := range c.VolumeMounts {
			if m := &c.VolumeMounts[i]; m.SubPath != "" || m.SubPathExpr != "" {
				n++
			}
		}
	}
	return n
}

// volumesOf is how many volumes a pod's containers use.
func volumesOf(pod *v1.Pod) (n int) {
	used := claims.Used(pod)
	for i := range pod.Spec.Volumes {
		if used[pod.Spec.Volumes[i].Name] {
			n++
		}
	}
	return n
}

// room counts what a pod needs, and refuses one that needs too much before anything of
// it is made. What was begun goes on: a restart of this process takes no pod's room for
// another's.
func (s *Set) room(st *podState, pod *v1.Pod) error {
	_, err := os.Lstat(filepath.Join(s.podDir(pod.UID), volumesDir))
	begun := err == nil
	if n := volumesOf(pod); n > mostVolumes && !begun {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("it has %d volumes, and this node sets up %d at most; put files together in projected volumes, or spread them over several pods", n, mostVolumes))
	}
	needs := mountsOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := needs
	for _, other := range s.pods {
		if other != st && other.namespace == pod.Namespace {
			all += other.mounts
		}
	}
	if all > mostMounts && !begun {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("it needs %d mounts for volumes in memory, claims, volumes of CSI drivers and NFS servers, and subPaths, and the pods of namespace %s would have %d on this node, where they may have %d; mount whole volumes, or spread the pods over several nodes",
			needs, pod.Namespace, all, mostMounts))
	}
	st.namespace, st.mounts = pod.Namespace, needs
	return nil
}
