package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// nesting is a pod whose container mounts a configMap at /etc/app and an emptyDir at path.
func nesting(path string) *v1.Pod {
	pod := podWith(configMapVolume("outer", "m"), emptyDirVolume("inner"))
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "outer", MountPath: "/etc/app"}, {Name: "inner", MountPath: path}}
	return pod
}

func (f *fixture) outer() string { return f.set.volumeDir("uid-1", pluginConfigMap, "outer") }

func TestAVolumeBeneathAVolumeOfFilesHasADirectoryToBeMountedOn(t *testing.T) {
	secret := v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "m"}}
	fields := []v1.DownwardAPIVolumeFile{{Path: "a", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	for name, source := range map[string]v1.VolumeSource{
		"configMap":   configMapVolume("", "m").VolumeSource,
		"secret":      secret,
		"downwardAPI": {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields}},
		"projected":   {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: fields}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.objects.setMap("m", map[string]string{"a": "1"})
			f.objects.secrets["ns/m"] = &v1.Secret{Data: map[string][]byte{"a": []byte("1")}}
			pod := nesting("/etc/app/cache/x")
			pod.Spec.Volumes[0].VolumeSource = source
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			dir, _ := f.set.HostPath(pod.UID, "outer")
			if info, err := os.Lstat(filepath.Join(dir, "cache/x")); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
				t.Errorf("the directory of the nested volume: %v, %v", info, err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || len(data) == 0 {
				t.Errorf("the volume's own file: %q, %v", data, err)
			}
		})
	}
}

func TestOnlyWhatLiesDirectlyBeneathTheWholeVolumeIsMade(t *testing.T) {
	mount := func(name, path string) v1.VolumeMount { return v1.VolumeMount{Name: name, MountPath: path} }
	for name, c := range map[string]struct {
		mounts []v1.VolumeMount
		want   []string
	}{
		"nothing beneath":                {[]v1.VolumeMount{mount("outer", "/a"), mount("x", "/ab"), mount("y", "/")}, nil},
		"beneath another mount of those": {[]v1.VolumeMount{mount("x", "/a/n"), mount("y", "/a/n/m"), mount("z", "/a/n-v"), mount("outer", "/a")}, []string{"n", "n-v"}},
		"the volume within itself":       {[]v1.VolumeMount{mount("outer", "/a"), mount("outer", "/a/b"), mount("x", "/a/b/c/d")}, []string{"b", "c/d"}},
		"above the volume":               {[]v1.VolumeMount{mount("x", "/a"), mount("outer", "/a/b"), mount("y", "/a/b/c")}, []string{"c"}},
		"a part of the volume":           {[]v1.VolumeMount{{Name: "outer", MountPath: "/a", SubPath: "s"}, mount("x", "/a/b")}, nil},
		"odd spellings":                  {[]v1.VolumeMount{mount("outer", "a/./"), mount("x", "/../a//b/"), mount("y", "/a/q/../c")}, []string{"b", "c"}},
		"out of it again":                {[]v1.VolumeMount{mount("outer", "/a"), mount("x", "/a/../../b")}, nil},
		"the container's root":           {[]v1.VolumeMount{mount("outer", "/"), mount("x", "/b")}, nil},
	} {
		if got := nestedOf(c.mounts, "outer"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	pod := podWith()
	mounts := func(path string) []v1.VolumeMount { return []v1.VolumeMount{mount("outer", "/a"), mount("x", path)} }
	pod.Spec.InitContainers = []v1.Container{{Name: "i", VolumeMounts: mounts("/a/i")}}
	pod.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: mounts("/a/c")}, {Name: "other", VolumeMounts: mounts("/a/c")[1:]}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", VolumeMounts: mounts("/a/e")}}}
	if got, err := indexMounts(pod).nestedIn("outer", func(string) bool { return false }); err != nil || !slices.Equal(got, []string{"c", "e", "i"}) {
		t.Errorf("of all containers: %v, %v", got, err)
	}
}

func TestADirectoryOfANestedVolumeStaysThroughRefreshes(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("m", map[string]string{"a": "1"})
	pod := nesting("/etc/app/cache")
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(filepath.Join(f.outer(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	// A key of that name is not seen: the other volume lies on it.
	f.objects.setMap("m", map[string]string{"a": "2", "cache": "a file"})
	for range 2 {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.Lstat(filepath.Join(f.outer(), "cache"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the directory on which a volume is mounted was made anew: %v, %v", after, err)
	}
	if data, _ := os.ReadFile(filepath.Join(f.outer(), "a")); string(data) != "2" {
		t.Errorf("a = %q", data)
	}
}

func TestAKeyWithTheNameOfANestedVolumeGivesWay(t *testing.T) {
	for _, c := range []struct{ key, path string }{{"cache", "cache"}, {"cache", "cache/x"}, {"cache/k", "cache/x"}} {
		f := newFixture(t)
		f.objects.setMap("m", map[string]string{"k": "1"})
		pod := nesting("/etc/app/" + c.path)
		pod.Spec.Volumes[0].ConfigMap.Items = []v1.KeyToPath{{Key: "k", Path: c.key}}
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(filepath.Join(f.outer(), c.path)); err != nil || !info.IsDir() {
			t.Errorf("key %s: the directory of the nested volume: %v, %v", c.key, info, err)
		}
	}
}

// A file of another volume over one of this volume's, as charts put it in its place.
func TestAFileThatIsMountedOverAKeyNeedsNoDirectory(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"a part of a volume": func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts[1].SubPath = "file" },
		"a file of the host": func(p *v1.Pod) {
			p.Spec.Volumes[1].VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: f1(t), Type: ptr.To(v1.HostPathFile)}}
		},
	} {
		f := newFixture(t)
		f.objects.setMap("m", map[string]string{"app.conf": "1"})
		pod := nesting("/etc/app/app.conf")
		change(pod)
		for range 2 {
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if data, err := os.ReadFile(filepath.Join(f.outer(), "app.conf")); err != nil || string(data) != "1" {
			t.Errorf("%s: what it is mounted over: %q, %v", name, data, err)
		}
		// Where there is no such key it is made as for any other.
		f.objects.setMap("m", map[string]string{"other": "1"})
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info, err := os.Lstat(filepath.Join(f.outer(), "app.conf")); err == nil && !info.IsDir() {
			t.Errorf("%s: without the key there is %v", name, info.Mode())
		}
	}
}

// Mount paths must differ as they are written, and not as they are meant.
func TestOfThousandsOfMountsEachIsLookedAtOnce(t *testing.T) {
	const n = 2000
	var mounts []v1.VolumeMount
	for i := range n {
		mounts = append(mounts, v1.VolumeMount{Name: "outer", MountPath: "/a" + strings.Repeat("/.", i)},
			v1.VolumeMount{Name: "inner", MountPath: fmt.Sprintf("/a/b/%d", i), SubPath: "s"})
	}
	mounts = append(mounts, v1.VolumeMount{Name: "outer", MountPath: "/a/b"}, v1.VolumeMount{Name: "inner", MountPath: "/" + strings.Repeat("a/", longestPath), SubPath: "s"})
	looks := 0
	left := withoutOverlays(nil, mounts, "outer", func(point string) bool {
		looks++
		return !strings.HasPrefix(point, "b/") && strings.HasSuffix(point, "7")
	})
	if looks != n || len(left) != len(mounts)-n/10 {
		t.Errorf("%d looks, %d of %d are left", looks, len(left), len(mounts))
	}
}

// f1 is a file.
func f1(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAFileWhereANestedVolumeIsToBeMountedIsNamed: a debug container comes when the
// volume is in use, and its files are not taken from those who use them.
func TestAFileWhereANestedVolumeIsToBeMountedIsNamed(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("m", map[string]string{"cache": "1"})
	pod := nesting("/elsewhere")
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.objects.setMap("m", map[string]string{"cache": "2"})
	pod = nesting("/etc/app/cache/x")
	err := f.set.Setup(t.Context(), pod)
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Fatalf("err = %v, want one line", err)
	}
	for _, part := range []string{`"cache/x"`, `"cache"`, `volume "outer"`, "pod ns/p"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("err = %v, want that it names %s", err, part)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(f.outer(), "cache")); string(data) != "2" {
		t.Errorf("the file that is in use is %q, and does not follow its object any more", data)
	}
}

func TestHostileMountPathsMakeNothingOutsideTheVolume(t *testing.T) {
	for _, path := range []string{"/etc/app/..data/x", "/etc/app/..data", "/etc/app/..x/y", "/etc/app/" + strings.Repeat("y", 256), "/etc/app" + strings.Repeat("/y", 3000), "/etc/app/\x00"} {
		f := newFixture(t)
		f.objects.setMap("m", map[string]string{"a": "1"})
		if err := f.set.Setup(t.Context(), nesting(path)); err == nil {
			t.Errorf("a mount at %.30q was accepted", path)
		}
		if entries, err := os.ReadDir(f.outer()); err != nil || len(entries) != 3 {
			t.Errorf("a mount at %.30q made %v, %v", path, entries, err)
		}
	}
	f, outside := newFixture(t), t.TempDir()
	f.objects.setMap("m", map[string]string{"a": "1"})
	if err := f.set.Setup(t.Context(), nesting("/elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(f.outer(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), nesting("/etc/app/link/x")); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a planted link: %v", err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("a planted link led to %v", entries)
	}
}

func TestDirectoriesOfNestedVolumesCountAsThePodsFiles(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("m", map[string]string{"a": "1"})
	pod := nesting("/elsewhere")
	for i := range mostOfPod / page / 1000 * 2 {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: "inner", MountPath: fmt.Sprintf("/etc/app/%d", i) + strings.Repeat("/y", 1000)})
	}
	if err := f.set.Setup(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("err = %v, want that it is too much", err)
	}
	if _, err := os.Lstat(filepath.Join(f.outer(), "0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first of them: %v", err)
	}
}

func TestFsGroupOwnsTheDirectoryOfANestedVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	f := newFixture(t)
	f.objects.setMap("m", map[string]string{"a": "1"})
	pod := nesting("/etc/app/cache/x")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cache", "cache/x"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(f.outer(), name), &st); err != nil || st.Gid != 4321 || st.Mode&0o7777 != 0o2755 {
			t.Errorf("%s: group %d, mode %o, %v", name, st.Gid, st.Mode, err)
		}
	}
}
