package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestASubPathThatTheServerHasMadeAnewIsMountedAnew: an NFS server's directory goes and
// another of that name comes, so that the handle that the client has of it is stale
// (kubernetes/kubernetes#138856). The container that ends by it starts again with the new
// one; the volume, and a container of the same pod that uses another part of it, stay.
func TestASubPathThatTheServerHasMadeAnewIsMountedAnew(t *testing.T) {
	serveFiles(t, "vers3=n\n")
	part, file := filepath.Join(nfsOpen, "part"), filepath.Join(nfsOpen, "part", "file")
	defer func() {
		if err := os.RemoveAll(part); err != nil {
			t.Error(err)
		}
	}()
	if err := write(file, "the first"); err != nil {
		t.Fatal(err)
	}
	// It ends by what it cannot read.
	p := nfsPod("nfs-stale", "while cat /v/part/file >/dev/null; do sleep 1; done", ofNFS("files", nfsOpen, false))
	p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/v/part", SubPath: "part"}}
	p.Spec.Containers[1].Name, p.Spec.Containers[1].Command = "beside", []string{"sh", "-c", idles}
	p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/v/whole", SubPath: "whole"}}
	apply(t, p)
	defer remove(t, "nfs-stale")
	full := ready(t, "nfs-stale").Name
	reads := func(want string) error {
		got, err := execute(t, full, "", "cat", "/v/part/file")
		if err == nil && got != want {
			err = fmt.Errorf("it reads %q, not %q", got, want)
		}
		return err
	}
	if err := reads("the first"); err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(os.RemoveAll(part), write(file, "the second")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container has started again with what is there now", func() error { return reads("the second") })
	for _, c := range ready(t, "nfs-stale").Status.ContainerStatuses {
		if restarted := c.RestartCount > 0; restarted != (c.Name == "app") {
			t.Errorf("%s was started again %d times: %+v", c.Name, c.RestartCount, c.LastTerminationState.Terminated)
		}
	}
	remove(t, "nfs-stale")
	nothingOfNFSIsLeft(t)
}
