package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// sidecars starts what stands beside a driver in a cluster: what makes its volumes, what
// attaches and what grows them, once the driver answers: they end when it is slow to.
func (h *house) sidecars() {
	h.Helper()
	h.eventually(2*time.Minute, "the driver is known", func() error {
		n, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		return boolError(err == nil && len(n.Spec.Drivers) > 0, "the CSINode has no driver, %v", err)
	})
	builder, err := programs.New(os.Stderr)
	h.must(err)
	for _, peer := range programs.CSIControllers() {
		binary, err := builder.Binary(h.ctx, peer)
		h.must(err)
		p := process.New(process.Config{
			Name: peer.Name, Path: binary, LogFile: h.inst.Path(peer.Name + ".log"),
			Args: []string{"--kubeconfig=" + h.cluster.AdminKubeconfig, "--csi-address=" + h.inst.Path("csi", h.csiName+".sock")},
		})
		h.must(p.Launch())
		h.Cleanup(p.Kill)
	}
}

// class makes a StorageClass of the driver whose volumes may grow and are made where their
// pods are scheduled to.
func (h *house) class(name string) {
	h.Helper()
	_, err := h.cluster.Client.StorageV1().StorageClasses().Create(h.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: csiDriver, AllowVolumeExpansion: ptr(true),
		VolumeBindingMode: ptr(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	h.must(err)
}

// statefulSet makes one of pods like p, each with a claim of a class at /data.
func (h *house) statefulSet(p *corev1.Pod, class string) {
	h.Helper()
	labels := map[string]string{"app": p.Name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec}
	template.Spec.NodeName = ""
	template.Spec.Containers[0].VolumeMounts = append(template.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	claim := claimSpec()
	claim.StorageClassName = &class
	_, err := h.cluster.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(h.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claim}},
		},
	}, metav1.CreateOptions{})
	h.must(err)
}

// detached waits until a volume is neither in use nor attached, and so many attachments are
// left, of others.
func (h *house) detached(handle string, left int) {
	h.Helper()
	h.eventually(3*time.Minute, handle+" is detached", func() error {
		used, attached, err := h.inUse(handle)
		if err != nil {
			return err
		}
		list, err := h.cluster.Client.StorageV1().VolumeAttachments().List(h.ctx, metav1.ListOptions{})
		return boolError(err == nil && !used && !attached && len(list.Items) == left, "in use %v, attached %v, %d attachments, %v", used, attached, len(list.Items), err)
	})
}

// asked are the calls of a driver with volumes, each once for as often as it was made in a
// row: who asks tries again.
func (h *house) asked(file string) []string {
	h.Helper()
	raw, err := os.ReadFile(file)
	h.must(err)
	calls := slices.DeleteFunc(strings.Fields(string(raw)), func(call string) bool { return !strings.HasSuffix(call, "Volume") })
	return slices.Compact(calls)
}

// TestAStatefulSetsVolumeGoesThroughTheRealSidecars: a claim of a StorageClass is
// provisioned, attached, used, grown, detached, used again and deleted, with nothing played
// by the test. The driver is asked for each step once the one before is done. Nothing is
// killed: whoever starts anew asks for what is there once more.
func TestAStatefulSetsVolumeGoesThroughTheRealSidecars(t *testing.T) {
	h := build(t, plan{controllers: true, within: 20 * time.Minute, prepare: func(h *house) { // the sidecars may have to be built
		_, err := h.inst.Mkdir("csi-volumes")
		h.must(err)
	}})
	calls, volumes := h.inst.Path("calls"), h.inst.Path("csi-volumes")
	h.csiWith(storagev1.CSIDriverSpec{}, "-stage", "-grow", "-volumes="+volumes, "-calls="+calls)
	h.sidecars()
	h.class("made")
	h.statefulSet(shellPod("app", idle), "made")
	first := h.waitReady("app-0", 4*time.Minute)
	claims := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := claims.Get(h.ctx, "data-app-0", metav1.GetOptions{})
	h.must(err)
	handle := claim.Spec.VolumeName
	h.prints(handle, "exec", "app-0", "--", "cat", "/data/id")

	claim.Spec.Resources.Requests = storage("2Gi")
	_, err = claims.Update(h.ctx, claim, metav1.UpdateOptions{})
	h.must(err)
	h.claimIs("data-app-0", "2Gi", "")
	h.prints("2048\n", "exec", "app-0", "--", "sh", "-c", "df -k /data | tail -n 1 | awk '{print $2}'")
	h.wantSame(first, h.waitReady("app-0", time.Minute))

	h.scale("app", 0)
	h.waitGone("app-0", 2*time.Minute)
	h.detached(handle, 0)
	h.scale("app", 1)
	h.waitReady("app-0", 4*time.Minute)
	h.prints(handle, "exec", "app-0", "--", "cat", "/data/id")
	h.scale("app", 0)
	h.waitGone("app-0", 2*time.Minute)
	h.detached(handle, 0)
	h.must(claims.Delete(h.ctx, "data-app-0", metav1.DeleteOptions{}))
	h.eventually(2*time.Minute, "the volume is deleted", func() error {
		_, err := h.cluster.Client.CoreV1().PersistentVolumes().Get(h.ctx, handle, metav1.GetOptions{})
		left, _ := filepath.Glob(filepath.Join(volumes, "*"))
		return boolError(apierrors.IsNotFound(err) && len(left) == 0, "%v, the driver has %v", err, left)
	})
	again := []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"}
	end := []string{"NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"}
	want := slices.Concat([]string{"CreateVolume"}, again, []string{"ControllerExpandVolume", "NodeExpandVolume"}, end, again, end, []string{"DeleteVolume"})
	if got := h.asked(calls); !slices.Equal(got, want) {
		t.Errorf("the driver was asked for\n%v, wanted is\n%v", got, want)
	}
	h.must(h.csiLeft())
	h.must(h.stagedLeft())
}

// scale changes how many pods a StatefulSet has.
func (h *house) scale(name string, pods int32) {
	h.Helper()
	sets := h.cluster.Client.AppsV1().StatefulSets(metav1.NamespaceDefault)
	scale, err := sets.GetScale(h.ctx, name, metav1.GetOptions{})
	h.must(err)
	scale.Spec.Replicas = pods
	_, err = sets.UpdateScale(h.ctx, name, scale, metav1.UpdateOptions{})
	h.must(err)
}
