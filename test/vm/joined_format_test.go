package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestJoinedAStopWhileAFilesystemIsMadeLeavesItWholeAndMadeOnce: the disk takes half a MiB in a
// second, so that it takes two minutes to make a filesystem on it.
func TestJoinedAStopWhileAFilesystemIsMadeLeavesItWholeAndMadeOnce(t *testing.T) {
	client := joinedCluster(t)
	device := diskOf(t, "slow")
	if err := run("systemctl", "start", "kubelet.service"); err != nil {
		t.Fatal(err)
	}
	localClaim(t, client, "slow", device)
	seen := watchFor(t, "mkfs.ext4")
	user := bind("user", "take", "mebibytes=1", "path=/data/file")
	user.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "slow"}}}}
	user.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	create(t, client, user)
	eventually(t, "a filesystem is being made", func() error {
		if len(seen.now()) == 0 {
			return fmt.Errorf("nobody does")
		}
		return nil
	})
	began := time.Now()
	sameAfter := func(what string) (running []int) {
		t.Helper()
		running, err := pidsOf("mkfs.ext4")
		if all := seen.now(); err != nil || len(all) != 1 || len(running) > 0 && !slices.Equal(running, all) {
			t.Fatalf("%s after it was begun, after %s: there run %v, there were %v, %v", time.Since(began).Round(time.Second), what, running, all, err)
		}
		t.Logf("%s after it was begun, after %s, there run %v", time.Since(began).Round(time.Second), what, running)
		return running
	}
	if err := run("systemctl", "stop", "kubelet.service"); err != nil {
		t.Fatal(err)
	}
	if len(sameAfter("the stop")) == 0 {
		t.Fatal("it was ended by the stop, or before")
	}
	if pid := property(t, "polylet-podsync.service", "MainPID"); pid != "0" {
		t.Errorf("podsync runs after its stop: %s", pid)
	}
	if err := run("systemctl", "start", "kubelet.service"); err != nil {
		t.Fatal(err)
	}
	sameAfter("the next start")
	if err := run("systemctl", "restart", "polylet-podsync.service"); err != nil {
		t.Fatal(err)
	}
	sameAfter("a restart of podsync alone")

	got := runs(t, client, "user")
	t.Logf("the pod is Ready %s after it was begun", time.Since(began).Round(time.Second))
	if s := got.Status.ContainerStatuses[0]; s.RestartCount != 0 {
		t.Errorf("%+v", s)
	}
	goes(t, client, "user")
	eventually(t, "the disk is mounted nowhere", func() error {
		if out, err := exec.Command("findmnt", "--source", device).Output(); err == nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if all := seen.end(); len(all) != 1 {
		t.Errorf("a filesystem was made by %v", all)
	}
	wantWhole(t, device, began)
	if err := client.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "slow", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// diskOf is the virtual disk with this serial number.
func diskOf(t *testing.T, serial string) string {
	t.Helper()
	all, err := filepath.Glob("/sys/block/vd*/serial")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if got, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(got)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	t.Fatalf("none of %v is %s", all, serial)
	return ""
}

// wantWhole wants nothing to mend of a filesystem, that it was made at a time, give or take,
// and that what a pod wrote is on it.
func wantWhole(t *testing.T, device string, made time.Time) {
	t.Helper()
	if out, err := exec.Command("e2fsck", "-f", "-n", device).CombinedOutput(); err != nil {
		t.Errorf("it is not whole: %v\n%s", err, out)
	}
	out, err := exec.Command("dumpe2fs", "-h", device).Output()
	found := regexp.MustCompile(`(?m)^Filesystem created: +(.+)$`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("%v: %s", err, out)
	}
	at, err := time.ParseInLocation(time.ANSIC, strings.TrimSpace(string(found[1])), time.Local)
	if err != nil || at.Sub(made).Abs() > 20*time.Second {
		t.Errorf("it was made at %s (%v), but begun at %s", at, err, made)
	}
	if out, err := exec.Command("debugfs", "-R", "stat /file", device).CombinedOutput(); err != nil || !strings.Contains(string(out), "Size: 1048576") {
		t.Errorf("the pod's file: %v, %s", err, out)
	}
}

// sightings are the processes with a name, in the order in which they were seen first.
type sightings struct {
	mu   sync.Mutex
	pids []int
	stop func()
}

// watchFor looks for processes with a name ten times a second.
func watchFor(t *testing.T, name string) *sightings {
	s := &sightings{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(stop); <-stopped })
	t.Cleanup(s.stop)
	go func() {
		defer close(stopped)
		for ticks := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			pids, _ := pidsOf(name) // what was not seen is the next time
			s.mu.Lock()
			for _, pid := range pids {
				if !slices.Contains(s.pids, pid) {
					s.pids = append(s.pids, pid)
				}
			}
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *sightings) now() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pids)
}

func (s *sightings) end() []int {
	s.stop()
	return s.now()
}

// localClaim is a claim that is bound to a disk of this node.
func localClaim(t *testing.T, client kubernetes.Interface, name, device string) {
	t.Helper()
	ext4 := "ext4"
	boundClaim(t, client, name, corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device, FSType: &ext4}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	})
}

// boundClaim is a claim that is bound to a PersistentVolume of the same name, for there is no
// controller that would bind it.
func boundClaim(t *testing.T, client kubernetes.Interface, name string, spec corev1.PersistentVolumeSpec) {
	t.Helper()
	core, none := client.CoreV1(), ""
	claim, err := core.PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none, AccessModes: spec.AccessModes, VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: spec.Capacity},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: name, UID: claim.UID}
	volume, err := core.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	volume.Status.Phase, claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.VolumeBound, corev1.ClaimBound, spec.AccessModes, spec.Capacity
	_, err = core.PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{})
	if err == nil {
		_, err = core.PersistentVolumeClaims("default").UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
