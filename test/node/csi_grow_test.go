package node_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// growingDisk is csiDisk of a class whose volumes may grow.
func (h *house) growingDisk(name string) {
	h.Helper()
	_, err := h.cluster.Client.StorageV1().StorageClasses().Create(h.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "growing"}, Provisioner: "nobody", AllowVolumeExpansion: ptr(true),
	}, metav1.CreateOptions{})
	h.must(err)
	claim := claimSpec()
	claim.StorageClassName, claim.VolumeName = ptr("growing"), "for-"+name
	_, err = h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(h.ctx,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claim}, metav1.CreateOptions{})
	h.must(err)
	_, err = h.cluster.Client.CoreV1().PersistentVolumes().Create(h.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "for-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage("1Gi"), AccessModes: claim.AccessModes, StorageClassName: "growing", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "handle-" + name}},
		},
	}, metav1.CreateOptions{})
	h.must(err)
	h.bound(name)
}

// enlarge does what a user does, and then a driver's external-resizer.
func (h *house) enlarge(name, size string) {
	h.Helper()
	all := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := all.Get(h.ctx, name, metav1.GetOptions{})
	h.must(err)
	claim.Spec.Resources.Requests = storage(size)
	claim, err = all.Update(h.ctx, claim, metav1.UpdateOptions{})
	h.must(err)
	pv, err := h.cluster.Client.CoreV1().PersistentVolumes().Get(h.ctx, "for-"+name, metav1.GetOptions{})
	h.must(err)
	pv.Spec.Capacity = storage(size)
	_, err = h.cluster.Client.CoreV1().PersistentVolumes().Update(h.ctx, pv, metav1.UpdateOptions{})
	h.must(err)
	claim.Status.AllocatedResources = storage(size)
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	_, err = all.UpdateStatus(h.ctx, claim, metav1.UpdateOptions{})
	h.must(err)
}

// claimIs waits until a claim says its size, and how it is being grown.
func (h *house) claimIs(name, size string, status corev1.ClaimResourceStatus, conditions ...corev1.PersistentVolumeClaimConditionType) {
	h.Helper()
	h.eventually(3*time.Minute, "the claim has "+size+" and is "+string(status), func() error {
		claim, err := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(h.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := claim.Status
		right := is.Capacity.Storage().String() == size && is.AllocatedResourceStatuses[corev1.ResourceStorage] == status && len(is.Conditions) == len(conditions)
		for i := range conditions {
			right = right && is.Conditions[i].Type == conditions[i]
		}
		return boolError(right, "it is %+v", is)
	})
}

// TestAVolumeGrowsWhileItsPodRunsAndAtItsNextMount: with the node's own credential, and
// over kills.
func TestAVolumeGrowsWhileItsPodRunsAndAtItsNextMount(t *testing.T) {
	h := build(t, plan{controllers: true})
	d := h.csiWith(storagev1.CSIDriverSpec{AttachRequired: ptr(false)}, "-stage", "-grow")
	h.growingDisk("disk")
	blocks := func(pod, want string) {
		t.Helper()
		h.prints(want+"\n", "exec", pod, "--", "sh", "-c", "df -k /data | tail -n 1 | awk '{print $2}'")
	}
	h.create(onDisk("first", "disk"))
	ready := h.waitReady("first", 2*time.Minute)
	blocks("first", "1024")

	h.enlarge("disk", "2Gi")
	h.claimIs("disk", "2Gi", "")
	blocks("first", "2048")
	h.eventually(time.Minute, "the pod and its claim have the event", func() error {
		want := `Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "for-disk" ` + nodeName
		pod, claim := h.events("first"), h.events("disk")
		return boolError(strings.Contains(pod, want) && strings.Contains(claim, want), "events are:\n%s\n%s", pod, claim)
	})

	undo := d.fault("NodeExpandVolume", "")
	h.enlarge("disk", "3Gi")
	h.claimIs("disk", "2Gi", corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimFileSystemResizePending)
	h.killAgent()
	d.killed()
	undo()
	h.must(d.Launch())
	h.claimIs("disk", "3Gi", "")
	blocks("first", "3072")

	undo = d.fault("NodeExpandVolume", "OutOfRange too large")
	h.enlarge("disk", "9Gi")
	h.claimIs("disk", "3Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimNodeResizeError)
	// Of an event the API hears after the claim.
	h.eventually(time.Minute, "the pod has the event", func() error {
		events := h.events("first")
		return boolError(strings.Contains(events, `Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "for-disk" : Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too large`), "events are:\n%s", events)
	})
	undo()
	if again := h.waitReady("first", time.Minute); again.Status.ContainerStatuses[0].ContainerID != ready.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod was stopped: %s", describe(again))
	}
	h.delete("first")
	h.waitGone("first", 2*time.Minute)

	h.enlarge("disk", "10Gi")
	h.create(onDisk("second", "disk"))
	h.waitReady("second", 2*time.Minute)
	blocks("second", "10240")
	h.claimIs("disk", "10Gi", "")
	h.delete("second")
	h.waitGone("second", 2*time.Minute)
}

// rejectedForRoom is what is said of a pod with one volume that cannot be attached, of which
// the token may not have been there yet.
var rejectedForRoom = regexp.MustCompile(`^Pod was rejected: Node has reached its volume attachment limit, rejecting pod\. ` +
	`unmounted volumes=\[data( kube-api-access-\w+)?\], unattached volumes=\[data\], failed to process volumes=\[\]: context deadline exceeded$`)

// TestAPodWhoseVolumesTheNodeHasNoRoomForIsRejected: what attaches volumes says that the
// node is full, and the pod's owner can make another one elsewhere.
func TestAPodWhoseVolumesTheNodeHasNoRoomForIsRejected(t *testing.T) {
	h := build(t, plan{controllers: true})
	d := h.csiWith(storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: ptr(int64(3600))}, "-stage", "-max-volumes=9")
	h.csiDisk("disk")
	h.create(onDisk("unlucky", "disk"))
	all := h.cluster.Client.StorageV1().VolumeAttachments()
	h.eventually(time.Minute, "its volume cannot be attached", func() error {
		list, err := all.List(h.ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return boolError(false, "%d attachments, %v", len(list.Items), err)
		}
		list.Items[0].Status.AttachError = &storagev1.VolumeError{Message: "full", ErrorCode: ptr(int32(8)), Time: metav1.Now()}
		_, err = all.UpdateStatus(h.ctx, &list.Items[0], metav1.UpdateOptions{})
		return err
	})
	h.must(os.WriteFile(filepath.Join(d.faults, "max-volumes"), []byte("1"), 0o600))
	h.eventually(4*time.Minute, "the pod is rejected", func() error {
		p, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(h.ctx, "unlucky", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "VolumeAttachmentLimitExceeded" && rejectedForRoom.MatchString(p.Status.Message),
			"it is %+v", p.Status)
	})
	h.eventually(time.Minute, "who schedules pods knows of it", func() error {
		n, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return boolError(len(n.Spec.Drivers) == 1 && n.Spec.Drivers[0].Allocatable != nil && *n.Spec.Drivers[0].Allocatable.Count == 1, "there is %+v", n.Spec.Drivers)
	})
	h.delete("unlucky")
	h.waitGone("unlucky", time.Minute)
}
