package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestSELinuxADiskOfATargetIsMountedWithTheLabelOfItsPod: by the kernel, and for the next pod anew
// with that one's.
func TestSELinuxADiskOfATargetIsMountedWithTheLabelOfItsPod(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	serveTwice(t)
	startUdev(t)
	if err := run("systemctl", "start", "iscsid.service"); err != nil {
		t.Fatal(err)
	}
	boundClaim(t, client, "disk", corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
		PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: targetPortal, IQN: targetIQN, Lun: 1, FSType: "ext4"}},
	})
	attach(t, client, "kubernetes.io/iscsi/"+targetPortal+":"+targetIQN+":1")
	create(t, client, ofLevel("disk-first", "s0:c1,c2", "disk"))
	first := runs(t, client, "disk-first")
	asked, pid := started(t, first)
	if asked["/v/disk"] {
		t.Errorf("the runtime is asked to relabel %v", asked)
	}
	if out, err := execute(t, first.Name, "", "sh", "-c", "echo mine >/v/disk/f"); err != nil {
		t.Errorf("in the container: %q, %v", out, err)
	}
	if got := labelOn(inContainer(pid, "/v/disk/f")); got != fileLabel+"s0:c1,c2" {
		t.Errorf("what the container has written has the label %s", got)
	}
	before := diskShown(t, fileLabel+"s0:c1,c2")

	killPodsync(t)
	create(t, client, ofLevel("disk-second", "s0:c3", "disk"))
	eventSays(t, client, "disk-second", fmt.Sprintf("conflicting SELinux labels of volume disk: %q and %q", fileLabel+"s0:c1,c2", fileLabel+"s0:c3"))
	if got := series(t, `volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP",volume_plugin="kubernetes.io/iscsi"}`); got == "" || got == "0" {
		t.Errorf("that the second pod waits is counted %q times", got)
	}
	if again := runs(t, client, "disk-first"); again.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container was started again: %+v", again.Status)
	}
	if now := diskShown(t, fileLabel+"s0:c1,c2"); !maps.Equal(now, before) {
		t.Errorf("mounted are %v, and were %v", now, before)
	}
	goes(t, client, "disk-first")
	runs(t, client, "disk-second")
	diskShown(t, fileLabel+"s0:c3")
	goes(t, client, "disk-second")
	nothingOfISCSIIsLeft(t)
}

// attach has the Node say that a volume is attached to it, which no controller does here.
func attach(t *testing.T, client kubernetes.Interface, name corev1.UniqueVolumeName) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": []corev1.AttachedVolume{{Name: name}}}})
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// diskShown wants the disk of a target to be mounted with a label, for all pods and for one, and
// its files to have it; it returns the mounts.
func diskShown(t *testing.T, label string) map[string]string {
	t.Helper()
	mounts := mountsOfISCSI(t)
	t.Logf("mounted: %v", mounts)
	if len(mounts) != 2 {
		t.Errorf("mounted are %v", mounts)
	}
	for path, options := range mounts {
		shown := strings.ReplaceAll(options, `"`, "")
		if got := labelOn(filepath.Join(path, "f")); !strings.Contains(shown, "context="+label) || got != label {
			t.Errorf("%s is mounted with %s, its file has the label %s, want %s", path, options, got, label)
		}
	}
	return mounts
}
