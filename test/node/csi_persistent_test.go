package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attach does what a driver's external-attacher does, until the test ends: it says of
// each VolumeAttachment that the attach-detach controller has made that it is attached.
func (h *house) attach() {
	h.Helper()
	done := make(chan struct{})
	h.Cleanup(func() { <-done })
	all := h.cluster.Client.StorageV1().VolumeAttachments()
	go func() {
		defer close(done)
		for h.ctx.Err() == nil && !h.Failed() {
			list, err := all.List(h.ctx, metav1.ListOptions{})
			if err != nil {
				return // the cluster has ended
			}
			for i := range list.Items {
				if a := &list.Items[i]; !a.Status.Attached {
					a.Status.Attached, a.Status.AttachmentMetadata = true, map[string]string{"lun": "7"}
					_, _ = all.UpdateStatus(h.ctx, a, metav1.UpdateOptions{}) // tried again
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// inUse says whether the Node says that a volume is, and attached whether it is attached.
func (h *house) inUse(handle string) (inUse, attached bool, err error) {
	n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + h.csiName + "^" + handle)
	return slices.Contains(n.Status.VolumesInUse, name),
		slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name }), nil
}

// stagedLeft is what is left of staged volumes.
func (h *house) stagedLeft() error {
	found, err := filepath.Glob(filepath.Join(h.node.RootDir, "plugins", "kubernetes.io", "csi", h.csiName, "*"))
	if err != nil {
		return err
	}
	mounts, err := h.inst.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if strings.Contains(m, "plugins/kubernetes.io/csi") {
			found = append(found, "mount of "+m)
		}
	}
	return boolError(len(found) == 0, "there is %v", found)
}

// csiDisk makes a claim and the volume of the driver that is bound to it.
func (h *house) csiDisk(name string) {
	h.Helper()
	h.claim(name)
	h.volumeFor(name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "handle-" + name, FSType: "ext4"}})
	h.bound(name)
}

// csiDevice is csiDisk of a raw device.
func (h *house) csiDevice(name string) {
	h.Helper()
	block := corev1.PersistentVolumeBlock
	claim := claimSpec()
	claim.VolumeMode = &block
	_, err := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(h.ctx,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claim}, metav1.CreateOptions{})
	h.must(err)
	h.volumeForAs(name, &block, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "handle-" + name}})
	h.bound(name)
}

// devicesLeft is what is left of devices.
func (h *house) devicesLeft() error {
	found, err := filepath.Glob(filepath.Join(h.node.RootDir, "plugins/kubernetes.io/csi/volumeDevices/*/*"))
	return boolError(err == nil && len(found) == 0, "there is %v, %v", found, err)
}

// onDevice is an idle pod with a claim's device at /dev/raw.
func onDevice(name, claim string) *corev1.Pod {
	p := onDisk(name, claim)
	p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/raw"}}
	return p
}

// onDisk is an idle pod with a claim at /data.
func onDisk(name, claim string) *corev1.Pod { return withClaim(shellPod(name, idle), claimed(claim)) }

// TestAVolumeOfAClaimIsStagedOnceForAllPodsAndDetachedAfterItsEnd: two pods share a volume
// which must be attached; podsync and the driver are killed at bad moments.
func TestAVolumeOfAClaimIsStagedOnceForAllPodsAndDetachedAfterItsEnd(t *testing.T) {
	h := build(t, plan{controllers: true})
	d := h.csiWith(storagev1.CSIDriverSpec{PodInfoOnMount: ptr(true)}, "-stage")
	h.csiDisk("shared")
	h.create(onDisk("first", "shared"))
	h.eventually(time.Minute, "the volume is in use before it is attached", func() error {
		used, attached, err := h.inUse("handle-shared")
		if err == nil && attached {
			err = fmt.Errorf("it is attached, and nobody has attached it")
		}
		return boolError(err == nil && used, "in use: %v, %v", used, err)
	})
	h.must(h.stagedLeft()) // nothing is done before it is attached
	h.attach()
	first := h.waitReady("first", 2*time.Minute)
	h.prints("handle-shared", "exec", "first", "--", "cat", "/data/id")
	h.create(onDisk("second", "shared"))
	h.waitReady("second", 2*time.Minute)
	h.prints("", "exec", "first", "--", "sh", "-c", "echo kept > /data/f")
	h.prints("kept\n", "exec", "second", "--", "cat", "/data/f")

	d.killed()
	h.killAgent()
	h.create(webApp("newcomer"))
	h.waitReady("newcomer", time.Minute)
	if again := h.waitReady("first", time.Minute); again.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod was stopped: %s", describe(again))
	}
	h.must(d.Launch())
	h.delete("first")
	h.killAgent()
	h.waitGone("first", 2*time.Minute)
	h.prints("kept\n", "exec", "second", "--", "cat", "/data/f")

	undo := d.fault("NodeUnstageVolume", "")
	h.delete("second")
	h.waitGone("second", 2*time.Minute) // a pod's end does not wait for that
	h.killAgent()
	time.Sleep(5 * time.Second) // time in which it could be detached
	if used, attached, err := h.inUse("handle-shared"); !used || !attached || err != nil || h.stagedLeft() == nil {
		t.Errorf("while it is staged: in use %v, attached %v, %v, %v", used, attached, err, h.stagedLeft())
	}
	d.killed()
	undo()
	h.must(d.Launch())
	h.eventually(3*time.Minute, "it is unstaged", h.stagedLeft)
	h.eventually(3*time.Minute, "it is detached", func() error {
		used, attached, err := h.inUse("handle-shared")
		return boolError(err == nil && !used && !attached, "in use %v, attached %v, %v", used, attached, err)
	})
	h.must(h.csiLeft())
	h.delete("newcomer")
	h.waitGone("newcomer", time.Minute)
	h.eventually(time.Minute, "nothing is left", func() error { return h.leftovers().err(nil) })
	if _, err := os.Stat(filepath.Join(h.node.RootDir, "pods", string(first.UID))); !os.IsNotExist(err) {
		t.Errorf("the pod's directory: %v", err)
	}
}

// TestAVolumeIsReadAndWrittenAsADevice: a pod uses a volume of a CSI driver as a block
// device, also after podsync was killed, and nothing is left of it.
func TestAVolumeIsReadAndWrittenAsADevice(t *testing.T) {
	h := build(t, plan{controllers: true})
	d := h.csiWith(storagev1.CSIDriverSpec{AttachRequired: ptr(false)}, "-stage")
	h.csiDevice("raw")
	p := onDevice("raw", "raw")
	h.create(p)
	ready := h.waitReady("raw", 2*time.Minute)
	h.prints("", "exec", "raw", "--", "sh", "-c", "echo kept > /dev/raw")
	h.prints("kept", "exec", "raw", "--", "sh", "-c", "head -c 4 /dev/raw")
	d.killed()
	h.killAgent()
	h.create(webApp("newcomer"))
	h.waitReady("newcomer", time.Minute)
	if again := h.waitReady("raw", time.Minute); again.Status.ContainerStatuses[0].ContainerID != ready.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod was stopped: %s", describe(again))
	}
	h.prints("kept", "exec", "raw", "--", "sh", "-c", "head -c 4 /dev/raw")
	h.must(d.Launch())
	undo := d.fault("NodeUnpublishVolume done", "")
	h.delete("raw")
	h.eventually(time.Minute, "its device is being unpublished", func() error {
		_, err := os.Stat(filepath.Join(h.node.RootDir, "plugins/kubernetes.io/csi/volumeDevices/publish/for-raw", string(ready.UID)))
		return boolError(os.IsNotExist(err), "it is there: %v", err)
	})
	h.killAgent()
	d.killed()
	undo()
	h.must(d.Launch())
	h.waitGone("raw", 3*time.Minute)
	h.nothingLeft(ready)
	h.eventually(time.Minute, "nothing is left of the device", h.devicesLeft)
	h.delete("newcomer")
	h.waitGone("newcomer", time.Minute)
}
