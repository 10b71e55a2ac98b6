package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// mounting is a pod that needs so many mounts for volumes in memory, and for subPaths.
func mounting(namespace, uid string, volumes, subPaths int) *v1.Pod {
	pod := podWith(emptyDirVolume("v"))
	pod.Namespace, pod.UID = namespace, types.UID(uid)
	for i := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: "missing", Optional: ptr.To(true)},
		}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: fmt.Sprintf("v%d", i), MountPath: fmt.Sprintf("/v%d", i)})
	}
	for i := range subPaths {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/%d", i), SubPath: "s"})
	}
	return pod
}

func TestAPodOfThousandsOfVolumesIsRefusedBeforeOneIsMade(t *testing.T) {
	f := newFixture(t)
	if err := f.set.Setup(t.Context(), mounting("ns", "full", mostVolumes-1, 0)); err != nil {
		t.Errorf("as many as a pod may have: %v", err)
	}
	err := f.set.Setup(t.Context(), mounting("ns", "more", mostVolumes, 0))
	if err == nil || !strings.Contains(err.Error(), "it has 513 volumes, and this node sets up 512 at most") {
		t.Errorf("one more: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(f.root, "pods", "more")); !os.IsNotExist(err) {
		t.Errorf("something of it was made: %v", err)
	}
	// Of one that was set up before there was a bound nothing is taken away.
	if err := os.MkdirAll(filepath.Join(f.root, "pods", "old", "volumes"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), mounting("ns", "old", mostVolumes, 0)); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}

// TestOneNamespaceDoesNotTakeAllMountsOfTheNode: without one there is no volume in memory
// for anybody, and no root of a container.
func TestOneNamespaceDoesNotTakeAllMountsOfTheNode(t *testing.T) {
	f := newFixture(t)
	first, second := mounting("a", "a1", 100, mostMounts-300), mounting("a", "a2", 100, 99)
	third, other := mounting("a", "a3", 2, 0), mounting("b", "b1", 2, 0)
	for _, pod := range []*v1.Pod{first, first, second} { // the first again, as with new labels
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatalf("pod %s: %v", pod.UID, err)
		}
	}
	refused := func(pod *v1.Pod) {
		t.Helper()
		err := f.set.Setup(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "it needs 2 mounts") || !strings.Contains(err.Error(), "would have 25001 on this node, where they may have 25000") {
			t.Errorf("one more of the namespace: %v", err)
		}
	}
	refused(third)
	if err := f.set.Setup(t.Context(), other); err != nil {
		t.Errorf("another namespace's: %v", err)
	}
	// After a restart those that were there have their room, whoever comes first.
	f.set = f.restarted()
	for _, pod := range []*v1.Pod{third, second, first} {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Errorf("after a restart, pod %s: %v", pod.UID, err)
		}
	}
}

func TestAVolumeOfACSIDriverIsAMount(t *testing.T) {
	if n := mountsOf(podWith(csiVolume("v", "a.example"), emptyDirVolume("e"))); n != 1 {
		t.Errorf("%d mounts", n)
	}
}

// TestAVolumeThatNoContainerMountsTakesNoRoom: it is not there.
func TestAVolumeThatNoContainerMountsTakesNoRoom(t *testing.T) {
	f := newFixture(t)
	pod := mounting("ns", "u", mostVolumes, 0)
	pod.Spec.Containers[0].VolumeMounts = nil
	if n := mountsOf(pod); n != 0 {
		t.Errorf("it needs %d mounts", n)
	}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Error(err)
	}
}
