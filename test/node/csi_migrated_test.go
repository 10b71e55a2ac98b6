package node_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ebs is the driver that Kubernetes has for awsElasticBlockStore volumes.
	ebs = "ebs.csi.aws.com"
	// ebsZone is that driver's label of where a node is.
	ebsZone = "topology.ebs.csi.aws.com/zone"
)

// oldClaim makes a claim and a volume of before CSI that is bound to it, as Kubernetes made
// them then.
func (h *house) oldClaim(name, disk string) {
	h.Helper()
	_, err := h.cluster.Client.StorageV1().StorageClasses().Create(h.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "old"}, Provisioner: "kubernetes.io/aws-ebs", AllowVolumeExpansion: ptr(true),
	}, metav1.CreateOptions{})
	h.must(err)
	claim := claimSpec()
	claim.StorageClassName, claim.VolumeName = ptr("old"), "for-"+name
	_, err = h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(h.ctx,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claim}, metav1.CreateOptions{})
	h.must(err)
	_, err = h.cluster.Client.CoreV1().PersistentVolumes().Create(h.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "for-" + name, Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage("1Gi"), AccessModes: claim.AccessModes, StorageClassName: "old", MountOptions: []string{"noatime"},
			ClaimRef:                      &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: name},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
				VolumeID: "aws://z1/" + disk, FSType: "ext4", Partition: 2,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z1"}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	h.must(err)
	h.bound(name)
}

// oldDisk is a volume of ebs in a pod's own spec, of before CSI.
func oldDisk(disk string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: disk, FSType: "xfs", ReadOnly: readOnly}}
}

// request is the last request with a volume that its driver got of a call, as JSON with
// $ROOT for the agent's directory, $DISK for that of the volume below its driver's, and
// $POD for the pod's UID; see csidriver -requests.
func (h *house) request(file, call, volume string, pod *corev1.Pod) string {
	h.Helper()
	raw, err := os.ReadFile(file)
	h.must(err)
	last := ""
	for line := range strings.Lines(string(raw)) {
		name, text, _ := strings.Cut(line, " ")
		var request map[string]any
		if name != call || json.Unmarshal([]byte(text), &request) != nil || request["volumeId"] != volume {
			continue
		}
		sorted, err := json.Marshal(request)
		h.must(err)
		last = string(sorted)
	}
	return strings.NewReplacer(
		h.node.RootDir, "$ROOT", fmt.Sprintf("%x", sha256.Sum256([]byte(volume))), "$DISK", string(pod.UID), "$POD",
	).Replace(last)
}

// label is a label of a series.
var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// succeeded are the operations with volumes of the driver (storage_operation_duration_seconds)
// and the calls for them (csi_operations_seconds) that have succeeded, each as "name migrated",
// sorted. Questions about the driver are none.
func (h *house) succeeded() (all []string) {
	h.Helper()
	text, err := h.nodeAPI("/metrics")
	h.must(err)
	for line := range strings.Lines(text) {
		labels := map[string]string{}
		for _, of := range label.FindAllStringSubmatch(line, -1) {
			labels[of[1]] = of[2]
		}
		name, call := labels["operation_name"], path.Base(labels["method_name"])
		switch {
		case strings.HasPrefix(line, "storage_operation_duration_seconds_count{") && labels["volume_plugin"] == "kubernetes.io/csi:"+h.csiName &&
			labels["status"] == "success" && name != "verify_controller_attached_volume":
			all = append(all, name+" "+labels["migrated"])
		case strings.HasPrefix(line, "csi_operations_seconds_count{") && labels["driver_name"] == h.csiName &&
			labels["grpc_status_code"] == "OK" && !strings.HasPrefix(call, "NodeGet"):
			all = append(all, call+" "+labels["migrated"])
		}
	}
	slices.Sort(all)
	return all
}

// haveSucceeded wants these and no others, sorted.
func (h *house) haveSucceeded(want ...string) {
	h.Helper()
	if got := h.succeeded(); !slices.Equal(got, want) {
		h.Errorf("counted are\n%q, wanted are\n%q", got, want)
	}
}

// attachedOld wants a volume of before CSI to be in use and attached, as the volume of a
// PersistentVolume, or as one of a pod's spec when there is none.
func (h *house) attachedOld(volume, pv string) {
	h.Helper()
	id := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume+h.csiName+nodeName)))
	a, err := h.cluster.Client.StorageV1().VolumeAttachments().Get(h.ctx, id, metav1.GetOptions{})
	h.must(err)
	of, inline := a.Spec.Source.PersistentVolumeName, a.Spec.Source.InlineVolumeSpec
	is := of != nil && *of == pv
	if pv == "" {
		is = inline != nil && inline.CSI != nil && inline.CSI.VolumeHandle == volume
	}
	if !is || a.Spec.Attacher != h.csiName || !a.Status.Attached {
		h.Errorf("the attachment of %s is %+v", volume, a)
	}
	if used, attached, err := h.inUse(volume); !used || !attached || err != nil {
		h.Errorf("%s is in use %v, attached %v, %v", volume, used, attached, err)
	}
}

// Of a volume of before CSI, as a kubelet 1.36 asks for it; see house.request.
const (
	oldStaging = `"stagingTargetPath":"$ROOT/plugins/kubernetes.io/csi/ebs.csi.aws.com/$DISK/globalmount"`
	oldClaimed = `"volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"ext4","mountFlags":["noatime"]}}`
	oldOwn     = `"volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"xfs"}}`
)

// oldPod is what ebs is told of a pod.
func oldPod(name, partition string) string {
	return `"volumeContext":{"csi.storage.k8s.io/ephemeral":"false","csi.storage.k8s.io/pod.name":"` + name + `","csi.storage.k8s.io/pod.namespace":"default",` +
		`"csi.storage.k8s.io/pod.uid":"$POD","csi.storage.k8s.io/serviceAccount.name":"default","partition":"` + partition + `"}`
}

// wereAsked wants the last request of each call with a volume to be so.
func (h *house) wereAsked(file, volume string, pod *corev1.Pod, want map[string]string) {
	h.Helper()
	for call, request := range want {
		if got := h.request(file, call, volume, pod); got != request {
			h.Errorf("%s of %s was\n%s, wanted is\n%s", call, volume, got, request)
		}
	}
}

// oldDriver starts ebs, with its volumes, and what stands beside it in a cluster. What is
// asked of it stands in a file then.
func (h *house) oldDriver(requests string) *csi {
	h.Helper()
	volumes, err := h.inst.Mkdir("csi-volumes")
	h.must(err)
	for _, disk := range []string{"vol-claim", "vol-own", "vol-read"} {
		h.must(os.WriteFile(filepath.Join(volumes, disk), []byte("1073741824 "), 0o600))
	}
	d := h.csiWith(storagev1.CSIDriverSpec{PodInfoOnMount: ptr(true)}, "-stage", "-grow", "-stats", "-topology="+ebsZone+"=z1", "-volumes="+volumes, "-requests="+requests)
	h.sidecars()
	return d
}

// TestVolumesOfBeforeCSIGoThroughTheirDriverAndTheRealSidecars: awsElasticBlockStore volumes of
// a claim and of a pod's spec are attached, staged, published, grown, measured and taken back
// by the driver that Kubernetes has for them, also over kills, and all that is counted of them
// says of what kind they are.
func TestVolumesOfBeforeCSIGoThroughTheirDriverAndTheRealSidecars(t *testing.T) {
	h := build(t, plan{controllers: true, within: 20 * time.Minute, overrides: map[string]any{"volumeStatsAggPeriod": "1s"}}) // the sidecars may have to be built
	h.csiName = ebs
	requests := h.inst.Path("requests")
	d := h.oldDriver(requests)
	claimed := h.oldClaimOfAPod(d, requests)
	own := h.oldInPodsSpecs(requests)
	h.oldGrowsAndIsMeasured(requests, claimed)
	h.haveSucceeded("NodeExpandVolume true", "NodePublishVolume true", "NodeStageVolume true", "NodeUnpublishVolume false", "NodeUnstageVolume false",
		"unmount_device true", unlikeAKubelet("volume_fs_resize"), "volume_mount true", "volume_unmount true")

	h.killAgent()
	h.create(webApp("newcomer"))
	h.waitReady("newcomer", time.Minute)
	for _, p := range []*corev1.Pod{claimed, own} {
		h.wantSame(p, h.waitReady(p.Name, time.Minute))
		h.prints("kept\n", "exec", p.Name, "--", "cat", "/data/f")
	}
	h.delete("own")
	h.waitGone("own", 2*time.Minute)
	h.detached("vol-own", 1)
	h.haveSucceeded("NodePublishVolume true", "NodeStageVolume true", "NodeUnpublishVolume false", "NodeUnstageVolume false",
		unlikeAKubelet("unmount_device"), "volume_mount true", "volume_unmount true")
	h.oldIsUnstagedLate(d)
	h.detached("vol-claim", 0)
	h.must(h.csiLeft())
	h.must(h.stagedLeft())
	h.delete("newcomer")
	h.waitGone("newcomer", time.Minute)
	h.eventually(time.Minute, "nothing is left", func() error { return h.leftovers().err(nil) })
}

// unlikeAKubelet is an operation of which polylet says that it is of a volume of before CSI: a
// kubelet never does of growing, and not of unstaging once it has been started anew.
func unlikeAKubelet(operation string) string { return fmt.Sprint(operation, " ", !onKubelet()) }

// oldClaimOfAPod: a claim's volume, which its driver refuses at first.
func (h *house) oldClaimOfAPod(d *csi, requests string) *corev1.Pod {
	h.Helper()
	undo := d.fault("NodeStageVolume", "Internal not yet")
	h.oldClaim("disk", "vol-claim")
	h.create(onDisk("claimed", "disk"))
	h.eventually(3*time.Minute, "an event says why", func() error {
		events := h.events("claimed")
		return boolError(strings.Contains(events, `Warning FailedMount: MountVolume.MountDevice failed for volume "`) && strings.Contains(events, `" : rpc error: code = Internal desc = not yet`),
			"events are:\n%s", events)
	})
	undo()
	p := h.waitReady("claimed", 4*time.Minute)
	h.prints("vol-claim", "exec", "claimed", "--", "cat", "/data/id")
	h.prints("", "exec", "claimed", "--", "sh", "-c", "echo kept > /data/f")
	h.wereAsked(requests, "vol-claim", p, map[string]string{
		"ControllerPublishVolume": `{"nodeId":"test-node",` + oldClaimed + `,"volumeContext":{"partition":"2"},"volumeId":"vol-claim"}`,
		"NodeStageVolume":         `{"publishContext":{"lun":"7"},` + oldStaging + `,` + oldClaimed + `,"volumeContext":{"partition":"2"},"volumeId":"vol-claim"}`,
		"NodePublishVolume": `{"publishContext":{"lun":"7"},` + oldStaging + `,"targetPath":"$ROOT/pods/$POD/volumes/kubernetes.io~csi/for-disk/mount",` +
			oldClaimed + `,` + oldPod("claimed", "2") + `,"volumeId":"vol-claim"}`,
	})
	h.attachedOld("vol-claim", "for-disk")
	n, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	h.must(err)
	if got := n.Annotations[corev1.MigratedPluginsAnnotationKey]; got != "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,"+
		"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume" {
		h.Errorf("the CSINode says of volumes of before CSI: %q", got)
	}
	return p
}

// oldInPodsSpecs: one that is written, and one that is not to be, whose pod goes.
func (h *house) oldInPodsSpecs(requests string) *corev1.Pod {
	h.Helper()
	h.create(withClaim(shellPod("own", idle), oldDisk("vol-own", false)), withClaim(shellPod("reader", idle), oldDisk("vol-read", true)))
	own := h.waitReady("own", 4*time.Minute)
	h.prints("vol-own", "exec", "own", "--", "cat", "/data/id")
	h.prints("", "exec", "own", "--", "sh", "-c", "echo kept > /data/f")
	h.wereAsked(requests, "vol-own", own, map[string]string{
		"ControllerPublishVolume": `{"nodeId":"test-node",` + oldOwn + `,"volumeContext":{"partition":"0"},"volumeId":"vol-own"}`,
		"NodeStageVolume":         `{"publishContext":{"lun":"7"},` + oldStaging + `,` + oldOwn + `,"volumeContext":{"partition":"0"},"volumeId":"vol-own"}`,
		"NodePublishVolume": `{"publishContext":{"lun":"7"},` + oldStaging + `,"targetPath":"$ROOT/pods/$POD/volumes/kubernetes.io~csi/ebs.csi.aws.com-vol-own/mount",` +
			oldOwn + `,` + oldPod("own", "0") + `,"volumeId":"vol-own"}`,
	})
	h.attachedOld("vol-own", "")

	h.waitReady("reader", 4*time.Minute)
	h.prints("vol-read", "exec", "reader", "--", "cat", "/data/id")
	if !onKubelet() { // which has it written
		h.fails(1, "Read-only file system", "exec", "reader", "--", "sh", "-c", "echo x > /data/f")
	}
	h.delete("reader")
	h.waitGone("reader", 2*time.Minute)
	h.detached("vol-read", 2)
	return own
}

// oldGrowsAndIsMeasured: a claim's volume grows by the real resizer, and the driver says how
// full it is.
func (h *house) oldGrowsAndIsMeasured(requests string, p *corev1.Pod) {
	h.Helper()
	claims := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := claims.Get(h.ctx, "disk", metav1.GetOptions{})
	h.must(err)
	claim.Spec.Resources.Requests = storage("2Gi")
	_, err = claims.Update(h.ctx, claim, metav1.UpdateOptions{})
	h.must(err)
	h.claimIs("disk", "2Gi", "")
	h.wereAsked(requests, "vol-claim", p, map[string]string{
		"NodeExpandVolume": `{"capacityRange":{"requiredBytes":"2147483648"},` + oldStaging + `,` + oldClaimed +
			`,"volumeId":"vol-claim","volumePath":"$ROOT/pods/$POD/volumes/kubernetes.io~csi/for-disk/mount"}`,
	})
	h.eventually(time.Minute, "its volume is as its driver says", func() error {
		v, err := h.usageOf(p.Name, "data")
		return boolError(err == nil && v != nil && v.UsedBytes != nil && *v.UsedBytes == 40, "it is %+v, %v", v, err)
	})
}

// oldIsUnstagedLate: a volume whose pod is gone is unstaged by an agent that has never seen
// that. A kubelet never unstages it, and is not asked to.
func (h *house) oldIsUnstagedLate(d *csi) {
	h.Helper()
	if onKubelet() {
		h.delete("claimed")
		h.waitGone("claimed", 2*time.Minute)
		return
	}
	undo := d.fault("NodeUnstageVolume", "Internal not yet")
	h.delete("claimed")
	h.waitGone("claimed", 2*time.Minute)
	h.killAgent()
	h.eventually(time.Minute, "it is tried after the start", func() error {
		text, err := h.nodeAPI("/metrics")
		return boolError(err == nil && strings.Contains(text, `grpc_status_code="Internal",method_name="/csi.v1.Node/NodeUnstageVolume"`), "it is not counted, %v", err)
	})
	undo()
	h.eventually(3*time.Minute, "it is unstaged", h.stagedLeft)
	h.haveSucceeded("NodeUnstageVolume false", "unmount_device true")
}
