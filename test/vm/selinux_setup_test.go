package vm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/test/harness/images"
)

const (
	kubeletRoot = "/var/lib/kubelet"
	// fileLabel is that of files of containers, but for its level.
	fileLabel = "system_u:object_r:container_file_t:"
)

// setUpSELinux is setUp of a node of a cluster on a kernel with SELinux, whose runtime gives
// containers labels. What starts containers and what this machine was booted for lie on a disk
// without labels: they get those of programs.
func setUpSELinux() error {
	kubeconfig, err := os.ReadFile(payload + "/node.kubeconfig")
	if err != nil {
		return err
	}
	if err := serveImages(); err != nil {
		return err
	}
	unit := strings.NewReplacer("/polylet/bin/containerd", "/usr/bin/containerd", "PATH=/polylet/bin:", "PATH=")
	text, err := os.ReadFile("/etc/systemd/system/containerd.service")
	if err != nil {
		return err
	}
	if err := writeAll(map[string]string{
		"/etc/systemd/system/containerd.service": unit.Replace(string(text)),
		"/etc/containerd/config.toml": strings.Replace(containerdConfig(true, images.Pause),
			"[plugins.'io.containerd.cri.v1.runtime']\n", "[plugins.'io.containerd.cri.v1.runtime']\n  enable_selinux = true\n", 1),
		"/etc/cni/net.d/10-bridge.conflist": network,
		"/etc/kubernetes/kubelet.conf":      string(kubeconfig),
		kubeletRoot + "/config.yaml":        configuration("systemd"),
		"/etc/default/kubelet":              "KUBELET_EXTRA_ARGS=--node-ip=10.0.2.15 --config-deadline=45s\n",
		manifests + "/.made":                "",
	}); err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "csidriver"} {
		if err := run("install", "-m", "0755", filepath.Join(payload, "bin", name), "/usr/bin/"+name); err != nil {
			return err
		}
	}
	if err := runAll([][]string{{"mkdir", "-p", "/var/lib/containerd"}, {"restorecon", "-R", "/etc", "/usr/bin", "/var/lib"}, {"systemctl", "daemon-reload"}, {"systemctl", "start", "containerd.service"}}); err != nil {
		return err
	}
	return install()
}

// labelOn is the label of a file as the kernel tells it.
func labelOn(path string) string {
	buffer := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", buffer)
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(string(buffer[:n]), "\x00")
}

// labelOfProcess is the label that a process runs with.
func labelOfProcess(pid string) string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "attr/current"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(string(text), "\x00\n")
}

// mountsAt are the number and the options of what is mounted at paths that have this in them, by
// their paths: as the kernel has them, of the mount and of the filesystem.
func mountsAt(t *testing.T, part string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.Contains(f[4], part) {
			found[f[4]] = f[0] + " " + f[5] + " " + f[len(f)-1]
		}
	}
	return found
}

// volumeAt is mountsAt of a claim's volume, which is staged and published once.
func volumeAt(t *testing.T, driver, claim string) map[string]string {
	t.Helper()
	staged := mountsAt(t, fmt.Sprintf("csi/%s/%x/", driver, sha256.Sum256([]byte("handle-"+claim))))
	maps.Copy(staged, mountsAt(t, "kubernetes.io~csi/"+claim+"/"))
	if len(staged) != 2 {
		t.Errorf("mounts %v of %s", staged, claim)
	}
	return staged
}

// driver starts a CSI driver that stages its volumes, each a tmpfs, and makes its object.
func driver(t *testing.T, client kubernetes.Interface, name string, labels bool) {
	t.Helper()
	const sockets = "/run/csi-driver"
	if err := errors.Join(os.MkdirAll(sockets, 0o755), os.MkdirAll(filepath.Join(kubeletRoot, "plugins_registry"), 0o750)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/usr/bin/csidriver", "-stage", "-name="+name, "-node-id="+node, "-sockets="+sockets, "-registry="+kubeletRoot+"/plugins_registry", "-faults="+t.TempDir())
	c.Stdout, c.Stderr = os.Stdout, os.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(unix.SIGTERM)
		_ = c.Wait()
	})
	no := false
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no, SELinuxMount: &labels}}
	if _, err := client.StorageV1().CSIDrivers().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// claim makes a claim and the volume of a driver, with mount options, that is bound to it, which
// no controller does here.
func claim(t *testing.T, client kubernetes.Interface, name, driver string, options ...string) {
	t.Helper()
	modes, class := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, ""
	room := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	c, err := client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: name, AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: room}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := client.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: room, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, MountOptions: options,
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle-" + name}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Status.Phase, c.Status.AccessModes, c.Status.Capacity = corev1.ClaimBound, modes, room
	v.Status.Phase = corev1.VolumeBound
	_, err = client.CoreV1().PersistentVolumeClaims("default").UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	_, otherErr := client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
}

// ofLevel is a pod with a shell whose containers have a level of SELinux's, and with the claims at
// /v/CLAIM.
func ofLevel(name, level string, claims ...string) *corev1.Pod {
	p := bind(name)
	c := &p.Spec.Containers[0]
	c.Image, c.Args, c.Command = images.BusyBox, nil, []string{"sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/v/" + claim})
	}
	return p
}

// series is a metric's value as the node serves it; empty when it does not.
func series(t *testing.T, name string) string {
	t.Helper()
	text, err := get(readOnly + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// eventSays waits until an event of a pod has these words.
func eventSays(t *testing.T, client kubernetes.Interface, pod, words string) {
	t.Helper()
	eventually(t, "an event of pod "+pod+": "+words, func() error {
		all := ""
		for _, e := range events(t, client, "involvedObject.name="+pod) {
			all += e.Reason + ": " + e.Message + "\n"
		}
		if !strings.Contains(all, words) {
			return fmt.Errorf("its events are:\n%s", all)
		}
		return nil
	})
}
