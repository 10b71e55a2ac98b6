package vm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestJoinedAClaimOfAnNFSServersDirectoryIsMountedWithItsOptions: what mount.nfs says of a
// directory that is not there is an event of the pod's.
func TestJoinedAClaimOfAnNFSServersDirectoryIsMountedWithItsOptions(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	serveFiles(t, "vers3=n\n")
	for name, path := range map[string]string{"shelf": nfsSquashed, "nowhere": "/srv/nfs/nowhere"} {
		spec := corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			MountOptions: []string{"nfsvers=4.1", "noatime", "rsize=65536"}, PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: ofNFS(name, path, false).NFS},
		}
		boundClaim(t, client, name, spec)
	}
	claimed := func(name, claim, script string, readOnly bool) *corev1.Pod {
		v := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}}
		p := nfsPod(name, script, v)
		p.Spec.NodeName, p.Spec.RestartPolicy, p.Spec.AutomountServiceAccountToken = node, corev1.RestartPolicyNever, new(bool)
		return &p
	}
	create(t, client, claimed("writer", "shelf", "echo 1 >/v/data/f; "+idles, false), claimed("lost", "nowhere", idles, false))
	runs(t, client, "writer")
	create(t, client, claimed("reader", "shelf", "cat /v/data/f; "+idles, true))
	runs(t, client, "reader")
	want := regexp.MustCompile(` /var/lib/kubelet/pods/[-0-9a-f]+/volumes/kubernetes\.io~nfs/shelf (rw|ro),noatime .* - nfs4 127\.0\.0\.1:` + nfsSquashed + ` (rw|ro),vers=4\.1,rsize=65536,`)
	modes := map[string]int{}
	for _, line := range nfsMounts(t) {
		found := want.FindStringSubmatch(line)
		if found == nil {
			t.Errorf("mounted: %s", line)
			continue
		}
		modes[found[1]]++
	}
	if modes["rw"] != 1 || modes["ro"] != 1 {
		t.Errorf("of one claim there are %v:\n%s", modes, strings.Join(nfsMounts(t), "\n"))
	}
	eventually(t, "the words of mount.nfs", func() error {
		all := events(t, client, "reason=FailedMount,involvedObject.name=lost")
		for _, e := range all {
			if strings.HasPrefix(e.Message, `MountVolume.SetUp failed for volume "nowhere" : mount failed: exit status 32`) &&
				strings.Contains(e.Message, "Mounting arguments: -t nfs -o nfsvers=4.1,noatime,rsize=65536 127.0.0.1:/srv/nfs/nowhere ") && strings.Contains(e.Message, "Output: mount.nfs: ") {
				t.Logf("%s", e.Message)
				return nil
			}
		}
		return fmt.Errorf("%+v", all)
	})
	goes(t, client, "writer", "reader", "lost")
	nothingOfNFSIsLeft(t)
	for _, name := range []string{"shelf", "nowhere"} {
		if err := client.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
