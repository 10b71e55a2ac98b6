package volume

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
)

func TestEveryContentVolumeHoldsWhatItsSourcesSay(t *testing.T) {
	f := newFixture(t)
	f.objects.maps["ns/cm"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}}
	f.objects.secrets["ns/s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	pod := podWith(
		configMapVolume("all", "cm"),
		v1.Volume{Name: "some", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
			Items:                []v1.KeyToPath{{Key: "a", Path: "dir/renamed", Mode: ptr.To[int32](0o400)}},
		}}},
		v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr.To[int32](0o440)}}},
		v1.Volume{Name: "down", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "requests.cpu"}},
		}}}},
		v1.Volume{Name: "proj", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "aud", ExpirationSeconds: ptr.To[int64](607)}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "a", Path: "ca.crt"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "absent"}, Optional: ptr.To(true)}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}},
		v1.Volume{Name: "none", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "absent"}, Optional: ptr.To(true),
		}}},
	)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[string]string{
		"all": {"a": "1", "b": "2", "bin": "\x00\x01"}, "some": {"dir/renamed": "1"}, "secret": {"k": "v"},
		"down": {"labels": `app="x"`, "cpu": "0"},
		"proj": {"token": "token-1", "ca.crt": "1", "namespace": "ns"}, "none": {},
	} {
		if got := f.files(t, name); !maps.Equal(got, want) {
			t.Errorf("volume %s holds %v, want %v", name, got, want)
		}
	}
	for path, want := range map[string]os.FileMode{"configmap/some/dir/renamed": 0o400, "configmap/all/a": 0o644, "secret/secret/k": 0o440} {
		info, err := os.Stat(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~"+path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, want)
		}
	}
	if r := f.tokens.requests[0]; r != (serviceaccount.Request{Namespace: "ns", ServiceAccount: "sa", Audience: "aud", ExpirationSeconds: 607, PodName: "p", PodUID: "uid-1"}) {
		t.Errorf("the token request was %+v", r)
	}
	var mounted []string
	for _, m := range f.mounts.Mounts() {
		mounted = append(mounted, filepath.Base(m))
	}
	if got := strings.Join(mounted, " "); got != "proj secret" {
		t.Errorf("on tmpfs: %s; want what can be secret, and no more", got)
	}
	if infos := f.set.Volumes("uid-1"); len(infos) != 6 || !infos[2].InMemory || infos[0].InMemory || !infos[0].Ephemeral {
		t.Errorf("Volumes = %+v", infos)
	}
}

func TestAFailureNamesTheVolumeAndLeavesTheOthersUp(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("there", map[string]string{"k": "v"})
	pod := podWith(
		configMapVolume("bad", "absent"), configMapVolume("good", "there"), emptyDirVolume("e"),
		v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "there"}, Items: []v1.KeyToPath{{Key: "nope", Path: "x"}},
		}}},
		v1.Volume{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}},
	)
	err := f.set.Setup(t.Context(), pod)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`MountVolume.SetUp failed for volume "bad" : configmap "absent" not found`,
		`MountVolume.SetUp failed for volume "key" : configmap references non-existent config key: nope`,
		`MountVolume.SetUp failed for volume "csi" : volumes of type csi are not supported yet`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") || !apierrors.IsNotFound(err) {
		t.Errorf("err = %q: want one line that unwraps to not found", err)
	}
	for _, name := range []string{"good", "e"} {
		if _, ok := f.set.HostPath("uid-1", name); !ok {
			t.Errorf("volume %s is not up", name)
		}
	}
	if _, ok := f.set.HostPath("uid-1", "bad"); ok {
		t.Error("the failed volume counts as up")
	}
}

func TestTeardownLeavesNothingEvenAfterARestart(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("cm", map[string]string{"k": "v"})
	f.objects.secrets["ns/s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	pod := podWith(configMapVolume("c", "cm"), emptyDirVolume("e"),
		v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "sub/path"); err != nil {
		t.Fatal(err)
	}
	if n := len(f.mounts.Mounts()); n != 3 {
		t.Fatalf("%d mounts, want 3", n)
	}
	f.set = f.restarted()
	for range 2 {
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Fatal(err)
		}
	}
	if left := f.mounts.Mounts(); len(left) != 0 {
		t.Errorf("mounts left: %v", left)
	}
	if err := f.set.RemovePodDir("uid-1"); err != nil {
		t.Fatal(err)
	}
	if uids, err := f.set.OnDisk(); err != nil || len(uids) != 0 {
		t.Errorf("on disk: %v, %v", uids, err)
	}
	if len(f.objects.held) != 0 {
		t.Errorf("objects still held: %v", f.objects.held)
	}
}

func TestAFailedUnmountKeepsTheVolumeAndCanBeTriedAgain(t *testing.T) {
	f := newFixture(t)
	pod := podWith(v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("busy")
	f.mounts.Fail = func(call, _ string) error {
		if call == "unmount" {
			return busy
		}
		return nil
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); !errors.Is(err, busy) {
		t.Fatalf("err = %v", err)
	}
	f.mounts.Fail = nil
	f.set.MayWork([]types.UID{"uid-1"})
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || len(f.mounts.Mounts()) != 0 {
		t.Errorf("second try: %v, mounts %v", err, f.mounts.Mounts())
	}
}

func TestAnEmptyDirKeepsItsContentOverSetups(t *testing.T) {
	f := newFixture(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir, _ := f.set.HostPath("uid-1", "e")
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the container's own mode became %v", info.Mode())
	}
}

func TestHostPathsAreCheckedByType(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, kind, want string
	}{
		{dir, "", ""}, {dir + "/absent", "", ""}, {dir, "Directory", ""}, {file, "Directory", file + " is not a directory"},
		{dir + "/absent", "Directory", "is not a directory"}, {file, "File", ""}, {dir, "File", "is not a file"},
		{dir + "/new/dir", "DirectoryOrCreate", ""}, {dir + "/newfile", "FileOrCreate", ""}, {dir + "/no/newfile", "FileOrCreate", "no such file"},
		{file, "Socket", "is not a socket file"}, {"/dev/null", "CharDevice", ""}, {"/dev/null", "BlockDevice", "is not a block device"},
		{dir + "/../x", "", "must not contain"}, {dir, "Nonsense", "invalid hostPath type"},
	} {
		kind := v1.HostPathType(c.kind)
		err := checkHostPath(&v1.HostPathVolumeSource{Path: c.path, Type: &kind}, findByPath)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s as %q: %v, want %q", c.path, c.kind, err, c.want)
		}
	}
	for path, isDir := range map[string]bool{dir + "/new/dir": true, dir + "/newfile": false} {
		if info, err := os.Stat(path); err != nil || info.IsDir() != isDir {
			t.Errorf("%s was not made: %v", path, err)
		}
	}
}

func TestNamesThatAreNoDirectoriesAreRefused(t *testing.T) {
	f := newFixture(t)
	for _, uid := range []types.UID{"", "..", "a/b", "."} {
		pod := podWith(emptyDirVolume("e"))
		pod.UID = uid
		if err := f.set.Setup(t.Context(), pod); err == nil {
			t.Errorf("UID %q was accepted", uid)
		}
		if err := f.set.Teardown(t.Context(), uid); err == nil {
			t.Errorf("tearing down UID %q was accepted", uid)
		}
	}
	if err := f.set.Setup(t.Context(), podWith(emptyDirVolume("../../x"))); err == nil {
		t.Error("a volume name with a path was accepted")
	}
}

func TestMemoryVolumesAreBoundedByTheSmallestLimit(t *testing.T) {
	f := newFixture(t)
	f.set.deps.Allocatable = func() v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: quantity("4Gi")} }
	pod := podWith()
	if got := f.set.memorySize(pod, nil); got != 4<<30 {
		t.Errorf("by the node: %d", got)
	}
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: quantity("1Gi")}
	if got := f.set.memorySize(pod, nil); got != 1<<30 {
		t.Errorf("by the pod: %d", got)
	}
	if got := f.set.memorySize(pod, ptr.To(quantity("1Mi"))); got != 1<<20 {
		t.Errorf("by itself: %d", got)
	}
	// An init container has the volume, too, and what its pod may use then.
	pod.Spec.InitContainers = []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: quantity("2Gi")}}}}
	if got := f.set.memorySize(pod, nil); got != 2<<30 {
		t.Errorf("by the pod, with an init container of more: %d", got)
	}
	pod.Spec.InitContainers[0].Resources.Limits = nil
	if got := f.set.memorySize(pod, nil); got != 4<<30 {
		t.Errorf("by the pod, with an init container without a limit: %d", got)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: quantity("3Gi")}}
	if got := f.set.memorySize(pod, nil); got != 3<<30 {
		t.Errorf("by the limit of the pod as a whole: %d", got)
	}
	f.set.deps.Allocatable = nil
	if got := f.set.memorySize(podWith(), nil); got != 0 {
		t.Errorf("by nothing: %d", got)
	}
}

func TestATokenBelongsToTheUserThatAllContainersShare(t *testing.T) {
	pod := podWith()
	user := func(uid int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &uid} }
	if commonUser(pod) != nil {
		t.Error("a user was made up")
	}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d", SecurityContext: user(7)})
	if got := commonUser(pod); got == nil || *got != 7 {
		t.Errorf("common user %v, want 7", got)
	}
	pod.Spec.InitContainers = []v1.Container{{SecurityContext: user(8)}}
	if commonUser(pod) != nil {
		t.Error("an init container with another user was overlooked")
	}
}

func TestAVolumeOfHugePagesIsAsLargeAsThePodAsksFor(t *testing.T) {
	amount := func(name, q string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceName(name): resource.MustParse(q)}}
	}
	whole := amount("hugepages-2Mi", "64Mi")
	for _, tc := range []struct {
		name       string
		medium     v1.StorageMedium
		whole      *v1.ResourceRequirements
		containers []v1.Container
		page, size int64 // zero for an error
	}{
		{"containers", "HugePages-2Mi", nil, []v1.Container{{Resources: amount("hugepages-2Mi", "4Mi")}, {Resources: amount("hugepages-2Mi", "2Mi")}}, 2 << 20, 6 << 20},
		{"the pod as a whole", "HugePages-2Mi", &whole, []v1.Container{{}}, 2 << 20, 64 << 20},
		{"the pod as a whole, by its only size", "HugePages", &whole, []v1.Container{{}}, 2 << 20, 64 << 20},
		{"the pod as a whole, and a container of it", "HugePages", &whole, []v1.Container{{Resources: amount("hugepages-2Mi", "4Mi")}}, 2 << 20, 64 << 20},
		{"another size", "HugePages-1Gi", &whole, []v1.Container{{}}, 0, 0},
		{"two sizes and none named", "HugePages", &whole, []v1.Container{{Resources: amount("hugepages-1Gi", "1Gi")}}, 0, 0},
	} {
		page, size, err := hugePages(&v1.Pod{Spec: v1.PodSpec{Resources: tc.whole, Containers: tc.containers}}, tc.medium)
		if page != tc.page || size != tc.size || (err == nil) != (tc.size > 0) {
			t.Errorf("%s: pages of %d, %d bytes, error %v", tc.name, page, size, err)
		}
	}
}
