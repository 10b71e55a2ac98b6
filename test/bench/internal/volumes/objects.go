package volumes

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

const (
	driverName = "csi.polylet.test"
	// objectName is that of the ConfigMap and of the Secret that pods have.
	objectName = "bench"
	account    = "default"
)

// driver starts a CSI driver whose volumes are staged and need not be attached.
func (b *bench) driver(ctx context.Context) (stop func(), err error) {
	builder, err := programs.New(os.Stderr)
	if err != nil {
		return nil, err
	}
	binary, err := builder.CSIDriver(ctx)
	if err != nil {
		return nil, err
	}
	sockets, err := b.Instance.Mkdir("csi")
	if err != nil {
		return nil, err
	}
	b.calls = b.Instance.Path("csi-calls")
	registry := filepath.Join(b.Node.RootDir, "plugins_registry")
	if err := os.MkdirAll(registry, 0o750); err != nil {
		return nil, err
	}
	no := false
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
	if _, err := b.Cluster.Client.StorageV1().CSIDrivers().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the CSIDriver: %w", err)
	}
	p := process.New(process.Config{
		Name: "csidriver", Path: binary, LogFile: b.Instance.Path("csidriver.log"),
		Args: []string{"-name=" + driverName, "-node-id=" + stage.NodeName, "-sockets=" + sockets, "-registry=" + registry, "-stage", "-calls=" + b.calls},
	})
	if err := p.Launch(); err != nil {
		return nil, err
	}
	return p.Stop, nil
}

// objects makes what pods' volumes are filled from.
func (b *bench) objects(ctx context.Context) error {
	core := b.Cluster.Client.CoreV1()
	data := map[string]string{}
	for n := range 10 {
		data[fmt.Sprintf("key-%d", n)] = fmt.Sprintf("value %d of some length", n)
	}
	meta := metav1.ObjectMeta{Name: objectName}
	if _, err := core.ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the ConfigMap: %w", err)
	}
	if _, err := core.Secrets(metav1.NamespaceDefault).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: data}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Secret: %w", err)
	}
	return nil
}

// claims makes claims that are bound to volumes of the driver; no controller does here.
func (b *bench) claims(ctx context.Context, n int) error {
	core := b.Cluster.Client.CoreV1()
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class := ""
	for _, name := range numbered("driven", n) {
		claim, err := core.PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: modes, VolumeName: "for-" + name, Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create claim %s: %w", name, err)
		}
		if _, err := core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "for-" + name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef:               &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: name, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "handle-" + name}},
			},
		}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the volume for claim %s: %w", name, err)
		}
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes, Capacity: size}
		if _, err := core.PersistentVolumeClaims(metav1.NamespaceDefault).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind claim %s: %w", name, err)
		}
	}
	return nil
}

// own is a pod with volumes that the node makes by itself.
func own(name string) *corev1.Pod {
	hour := int64(3600)
	return with(stage.Pod(name), map[string]corev1.VolumeSource{
		"config": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: objectName}}},
		"secret": {Secret: &corev1.SecretVolumeSource{SecretName: objectName}},
		"token": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
		}}},
		"empty": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
}

// driven is a pod with a volume of the driver, by the claim of its name.
func driven(name string) *corev1.Pod {
	return with(stage.Pod(name), map[string]corev1.VolumeSource{
		"data": {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}},
	})
}

// with gives a pod volumes, and has its container mount them.
func with(pod *corev1.Pod, sources map[string]corev1.VolumeSource) *corev1.Pod {
	pod.Spec.ServiceAccountName = account
	for name, source := range sources {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return pod
}

func keys(counts map[string]int) iter.Seq[string] { return maps.Keys(counts) }
