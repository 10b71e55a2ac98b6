package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claims are bound by the controllers of Kubernetes, and the node reads them with its
// own credential, which may get them and neither list nor watch.

func TestPodsUseTheVolumesOfTheirClaims(t *testing.T) {
	h := build(t, plan{controllers: true})
	for _, c := range []struct {
		name string
		run  func(*house)
	}{
		{"a pod waits for its claim and starts when it is bound", lateClaim},
		{"a volume of the host is read-only for a pod that says so", readOnlyClaim},
		{"an ephemeral volume is the pod's own", ephemeralClaim},
		{"a kind that the node does not support is named", unknownKind},
		{"a pod that goes while podsync is killed leaves nothing", claimOfAPodThatGoes},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := *h
			of.T = t
			c.run(&of)
		})
	}
}

// volumeFor makes a PersistentVolume that waits for a claim of default.
func (h *house) volumeFor(claim string, source corev1.PersistentVolumeSource) {
	h.Helper()
	h.volumeForAs(claim, nil, source)
}

// volumeForAs is volumeFor of a filesystem or a device.
func (h *house) volumeForAs(claim string, mode *corev1.PersistentVolumeMode, source corev1.PersistentVolumeSource) {
	h.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "for-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: claim}, PersistentVolumeSource: source, VolumeMode: mode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
			}}}},
		},
	}
	_, err := h.cluster.Client.CoreV1().PersistentVolumes().Create(h.ctx, pv, metav1.CreateOptions{})
	h.must(err)
}

// claimSpec asks for a volume that somebody has made.
func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

func (h *house) claim(name string) {
	h.Helper()
	_, err := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(h.ctx,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claimSpec()}, metav1.CreateOptions{})
	h.must(err)
}

// bound waits until a claim is bound.
func (h *house) bound(claim string) {
	h.Helper()
	h.quietly(time.Minute, "claim "+claim+" is bound", func() error {
		c, err := h.cluster.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(h.ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return boolError(c.Status.Phase == corev1.ClaimBound, "it is %s", c.Status.Phase)
	})
}

// withClaim mounts a claim at /data.
func withClaim(p *corev1.Pod, source corev1.VolumeSource) *corev1.Pod {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return p
}

func claimed(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// disk makes a directory that stands for a disk of the node.
func (h *house) disk(name string) string {
	h.Helper()
	dir, err := h.inst.Mkdir("disks", name)
	h.must(err)
	return dir
}

func localDisk(dir string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}
}

// eventSays waits for an event of a pod that says something.
func (h *house) eventSays(pod, text string) {
	h.Helper()
	if onKubelet() {
		return // it says so after two minutes, in a longer sentence
	}
	h.eventually(30*time.Second, "an event of "+pod+" says: "+text, func() error {
		all := h.events(pod)
		return boolError(strings.Contains(all, text), "%s", all)
	})
}

// nothingLeft wants nothing of a pod to be left on the node.
func (h *house) nothingLeft(p *corev1.Pod) {
	h.Helper()
	dir := h.inst.Path("kubelet", "pods", string(p.UID))
	h.eventually(time.Minute, "nothing is left of "+p.Name, func() error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Contains(string(mounts), dir) {
			return fmt.Errorf("something is mounted below %s", dir)
		}
		_, err = os.Stat(dir)
		return boolError(os.IsNotExist(err), "%s is there", dir)
	})
}

func lateClaim(h *house) {
	disk := h.disk("late")
	h.must(os.WriteFile(filepath.Join(disk, "old"), nil, 0o600))
	p := withClaim(webApp("late"), claimed("late"))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1234)), FSGroup: ptr(int64(3456))}
	h.create(p)
	h.eventSays("late", `MountVolume.SetUp failed for volume "data" : error processing PVC default/late: failed to fetch PVC from API server: persistentvolumeclaims "late" not found`)
	h.claim("late")
	h.eventSays("late", `MountVolume.SetUp failed for volume "data" : error processing PVC default/late: PVC is not bound`)
	if !onKubelet() {
		if out, err := h.polylet("explain", "default/late"); !strings.Contains(out, "PVC is not bound") {
			h.Errorf("explain does not name the cause: %v\n%s", err, out)
		}
		h.killService("podsync") // what it waits for, it waits for again
	}
	time.Sleep(20 * time.Second) // it has been asked for often, and is asked for rarely now
	h.volumeFor("late", localDisk(disk))
	h.bound("late")
	began := time.Now()
	h.create(webApp("beside")) // which waits for nothing: as long as it takes on this machine
	ready := h.waitReady("late", 2*time.Minute)
	h.Logf("ready %s after its claim was bound", time.Since(began).Round(100*time.Millisecond))
	if behind := readySince(ready).Sub(readySince(h.waitReady("beside", 2*time.Minute))); behind > 10*time.Second && !onKubelet() {
		h.Errorf("the pod was ready %s after one that was made when its claim was bound", behind)
	}
	for _, args := range [][]string{{"write", "path=/data/new", "text=x"}, {"stat", "path=/data/old"}} {
		if out, err := h.kubectl(append([]string{"exec", "late", "--", "/testapp"}, args...)...); err != nil {
			h.Errorf("%s: %v", args[0], err)
		} else if args[0] == "stat" && !strings.Contains(out, "gid=3456") {
			h.Errorf("the file that was there: %s", out)
		}
	}
	h.eventually(2*time.Minute, "the volume is measured for its claim", func() error {
		text, err := h.nodeAPI("/metrics")
		if err != nil {
			return err
		}
		const series = `kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="late"}`
		return boolError(strings.Contains(text, series), "there is no %s", series)
	})
	if !onKubelet() {
		h.killService("podsync")
	}
	h.delete("late")
	h.waitGone("late", time.Minute)
	h.nothingLeft(ready)
	for _, name := range []string{"old", "new"} {
		if _, err := os.Stat(filepath.Join(disk, name)); err != nil {
			h.Errorf("the volume's data: %v", err)
		}
	}
}

func readOnlyClaim(h *house) {
	disk := h.disk("read-only")
	h.claim("read-only")
	h.volumeFor("read-only", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk, Type: ptr(corev1.HostPathDirectory)}})
	h.bound("read-only")
	source := claimed("read-only")
	source.PersistentVolumeClaim.ReadOnly = true
	h.create(withClaim(webApp("read-only"), source))
	h.waitReady("read-only", time.Minute)
	if out, err := h.kubectl("exec", "read-only", "--", "/testapp", "write", "path=/data/f", "text=x"); err == nil || !strings.Contains(err.Error(), "read-only") {
		h.Errorf("a write: %v %s", err, out)
	}
	h.delete("read-only")
	h.waitGone("read-only", time.Minute)
}

func ephemeralClaim(h *house) {
	disk := h.disk("ephemeral")
	source := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec()}}}
	h.volumeFor("own-data", localDisk(disk))
	h.create(withClaim(webApp("own"), source))
	ready := h.waitReady("own", time.Minute)
	if out, err := h.kubectl("exec", "own", "--", "/testapp", "write", "path=/data/f", "text=x"); err != nil {
		h.Errorf("a write: %v %s", err, out)
	}
	h.delete("own")
	h.waitGone("own", time.Minute)
	h.nothingLeft(ready)

	h.volumeFor("thief-data", localDisk(disk))
	h.claim("thief-data") // somebody else's, of the name that the pod's would have
	h.bound("thief-data")
	h.create(withClaim(webApp("thief"), source))
	h.eventSays("thief", `PVC default/thief-data was not created for pod default/thief (pod is not owner)`)
	h.delete("thief")
	h.waitGone("thief", time.Minute)
}

func unknownKind(h *house) {
	h.claim("rbd")
	h.volumeFor("rbd", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"192.0.2.1"}, RBDImage: "i"}})
	h.bound("rbd")
	h.create(withClaim(webApp("rbd"), claimed("rbd")))
	h.eventSays("rbd", `PersistentVolume for-rbd is of the kind rbd, which this node does not support`)
	h.delete("rbd")
	h.waitGone("rbd", time.Minute)
}

func claimOfAPodThatGoes(h *house) {
	disk := h.disk("goes")
	h.claim("goes")
	h.volumeFor("goes", localDisk(disk))
	h.bound("goes")
	p := withClaim(webApp("goes"), claimed("goes"))
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/part", SubPath: "part"})
	h.create(p)
	ready := h.waitReady("goes", time.Minute)
	h.delete("goes")
	if !onKubelet() {
		for range 3 {
			h.killService("podsync")
			time.Sleep(300 * time.Millisecond)
		}
	}
	h.waitGone("goes", time.Minute)
	h.nothingLeft(ready)
	if _, err := os.Stat(filepath.Join(disk, "part")); err != nil {
		h.Errorf("the volume's directory: %v", err)
	}
}
