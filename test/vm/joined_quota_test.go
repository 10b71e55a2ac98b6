package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// users is the runtime with a runc that makes user namespaces, and its class.
const users = "users"

// ofOwnUsers is a pod with a user namespace that holds a file open in a volume of at most 20
// MiB, which it has removed.
func ofOwnUsers(name string, mebibytes int) *corev1.Pod {
	p := scratch(bind(name, "take", fmt.Sprintf("mebibytes=%d", mebibytes), "path=/scratch/file", "unlink=true"), "20Mi")
	p.Spec.HostUsers, p.Spec.RuntimeClassName = new(bool), new(users)
	return p
}

// inVolume is what a pod's only volume has, by the summary.
func inVolume(t *testing.T, uid string) (*statsapi.FsStats, error) {
	t.Helper()
	raw, err := get(readOnly + "/stats/summary")
	if err != nil {
		return nil, err
	}
	var s statsapi.Summary
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	for i := range s.Pods {
		if v := s.Pods[i].VolumeStats; s.Pods[i].PodRef.UID == uid && len(v) == 1 {
			return &v[0].FsStats, nil
		}
	}
	return nil, fmt.Errorf("nothing of the pod %s", uid)
}

// has waits until a pod's volume has so many MiB, and not much more.
func has(t *testing.T, uid string, mebibytes uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the volume has %d MiB", mebibytes), func() error {
		fs, err := inVolume(t, uid)
		if err != nil {
			return err
		}
		if used := *fs.UsedBytes >> 20; used != mebibytes || *fs.InodesUsed > 2 || *fs.CapacityBytes > quotaDisk {
			return fmt.Errorf("%d bytes, %d inodes, of %d", *fs.UsedBytes, *fs.InodesUsed, *fs.CapacityBytes)
		}
		return nil
	})
}

// TestJoinedAnEmptyDirIsMeasuredByAProjectQuota: a file without a name counts by it.
func TestJoinedAnEmptyDirIsMeasuredByAProjectQuota(t *testing.T) {
	const root = "/var/lib/counted"
	countsProjects(t, "ext4", root)
	client := joinedCluster(t)
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: users}, Handler: users}
	if _, err := client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := reconfigure(t, map[string]string{
		"evictionHard": "{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}", "featureGates": "{MemoryQoS: true, QOSReserved: true, LocalStorageCapacityIsolationFSQuotaMonitoring: true}",
	}, " --root-dir="+root)
	defer restart(t, before)
	under := ofOwnUsers("under", 15)
	hosts := scratch(bind("hosts", "take", "mebibytes=15", "path=/scratch/file", "unlink=true"), "20Mi")
	create(t, client, under, hosts)
	uid := string(runs(t, client, "under").UID)
	has(t, uid, 15)
	create(t, client, ofOwnUsers("over", 25))
	eventually(t, "the pod over its limit is evicted", func() error {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), "over", metav1.GetOptions{})
		if err == nil && (p.Status.Reason != "Evicted" || p.Status.Message != `Usage of EmptyDir volume "scratch" exceeds the limit "20Mi". `) {
			err = fmt.Errorf("%s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return err
	})
	out, err := exec.Command("/usr/bin/polylet", "volumes", "default/under", "-o", "yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "projectId: 10485") {
		t.Errorf("polylet volumes: %v, %s", err, out)
	}
	if fs, err := inVolume(t, string(runs(t, client, "hosts").UID)); err != nil || *fs.UsedBytes > 1<<20 {
		t.Errorf("of the pod with the host's users: %+v, %v", fs, err)
	}
	for range 3 {
		if err := run("systemctl", "kill", "--signal=KILL", "polylet-podsync.service"); err != nil {
			t.Fatal(err)
		}
		// The figure is to stand the whole time, so it is looked at once a second.
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
			if fs, err := inVolume(t, uid); err != nil || *fs.UsedBytes>>20 != 15 {
				t.Errorf("after podsync was killed: %+v, %v", fs, err)
			}
		}
	}
	has(t, uid, 15)
	stillRuns := runs(t, client, "under")
	if n := stillRuns.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the pod under its limit was restarted %d times", n)
	}
	goes(t, client, "under", "over", "hosts")
	nothingIsCounted(t, root)
}

// nothingIsCounted wants no project to have anything, and no directory to have one.
func nothingIsCounted(t *testing.T, root string) {
	t.Helper()
	eventually(t, "nothing is counted by any project", func() error {
		dirs, err := filepath.Glob(filepath.Join(root, "pods", "*"))
		if err == nil && len(dirs) > 0 {
			err = fmt.Errorf("there are %v", dirs)
		}
		return err
	})
	out, err := exec.Command("xfs_quota", "-f", "-x", "-c", "report -p -b -i -n", root).CombinedOutput()
	lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return !strings.HasPrefix(line, "#104") })
	if err != nil || len(lines) > 0 {
		t.Errorf("xfs_quota: %v, %s", err, out)
	}
	t.Log(string(out))
	for _, file := range []string{"/etc/projects", "/etc/projid"} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was written", file)
		}
	}
}
