package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// onKernel is a fixture with real mounts, all gone at the test's end.
func onKernel(t *testing.T) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	f := newFixture(t)
	f.set.deps.Mounter = mount.New()
	t.Cleanup(func() {
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			// The context is done by now: take the mounts down by hand.
			for _, m := range mountsBelow(t, f.root) {
				_ = unix.Unmount(m, unix.MNT_DETACH)
			}
		}
		if left := mountsBelow(t, f.root); len(left) != 0 {
			t.Errorf("mounts left: %v", left)
		}
	})
	return f
}

func mountsBelow(t *testing.T, root string) []string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], root) {
			found = append([]string{fields[4]}, found...)
		}
	}
	return found
}

func TestSecretsAndMemoryLieOnRealTmpfs(t *testing.T) {
	f := onKernel(t)
	f.objects.secrets["ns/s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	pod := podWith(
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: v1.StorageMediumMemory, SizeLimit: ptr.To(quantity("1Mi")),
		}}},
	)
	for range 2 {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(mountsBelow(t, f.root)); n != 2 {
		t.Errorf("%d mounts after setting up twice, want 2", n)
	}
	var st unix.Statfs_t
	dir, _ := f.set.HostPath("uid-1", "m")
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Blocks)*st.Bsize != 1<<20 {
		t.Errorf("the memory volume: type %x, %d bytes, %v", st.Type, int64(st.Blocks)*st.Bsize, err)
	}
	if got := f.files(t, "s")["k"]; got != "v" {
		t.Errorf("the secret holds %q", got)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if left := mountsBelow(t, f.root); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFsGroupOwnsVolumesAndTheirLaterContent(t *testing.T) {
	f := onKernel(t)
	f.objects.setMap("cm", map[string]string{"k": "v"})
	pod := podWith(emptyDirVolume("e"), configMapVolume("c", "cm"),
		v1.Volume{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321), RunAsUser: ptr.To[int64](1234)}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.objects.setMap("cm", map[string]string{"k": "v2"})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(f.root, "pods/uid-1/volumes")
	for path, want := range map[string]string{
		pluginEmptyDir + "/e":        "gid 4321 mode 2777",
		pluginConfigMap + "/c/k":     "gid 4321 mode 644",
		pluginProjected + "/p/token": "gid 4321 mode 640",
	} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(base, path), &st); err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprintf("gid %d mode %o", st.Gid, st.Mode&0o7777); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if strings.HasSuffix(path, "token") && st.Uid != 1234 {
			t.Errorf("the token belongs to user %d", st.Uid)
		}
	}
}

func TestASubPathIsExactlyWhatWasFound(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(volume, "inside")); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"file", "inside", "./file"} {
		path, err := f.set.SubPath(t.Context(), pod, "c", i, "e", name)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "one" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	dir, err := f.set.SubPath(t.Context(), pod, "c", 3, "e", "new/dir")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(volume, "new/dir")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the missing directory: %v, %v; want the volume's mode", info, err)
	}
	before := len(mountsBelow(t, f.root))
	again, err := f.set.SubPath(t.Context(), pod, "c", 3, "e", "new/dir")
	if err != nil || again != dir || len(mountsBelow(t, f.root)) != before {
		t.Errorf("a restarted container mounts anew: %v", err)
	}
	// Another file under the same name is what the next container gets.
	if err := os.WriteFile(filepath.Join(volume, "other"), []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, "other"), filepath.Join(volume, "file")); err != nil {
		t.Fatal(err)
	}
	path, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "file")
	if data, _ := os.ReadFile(path); err != nil || string(data) != "two" {
		t.Errorf("after the swap: %q, %v", data, err)
	}
}

func TestWhatIsMadeForASubPathIsAsStickyAsTheVolume(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	const mode = os.ModePerm | os.ModeSetgid | os.ModeSticky
	if err := os.Chmod(volume, mode); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "new/dir"); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{"new", "new/dir"} {
		if info, err := os.Stat(filepath.Join(volume, made)); err != nil || info.Mode() != os.ModeDir|mode {
			t.Errorf("%s: %v, %v; want the volume's mode", made, info.Mode(), err)
		}
	}
}

func TestASubPathCannotLeaveTheVolume(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	outside := t.TempDir()
	for name, target := range map[string]string{"abs": outside, "up": "../../../../..", "proc": "/proc/self/root", "dangling": outside + "/none"} {
		if err := os.Symlink(target, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"abs", "up", "abs/x", "up/etc", "proc", "proc/etc/passwd", "dangling", "dangling/x", "../e", "a/../../x", "/etc"} {
		if got, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", path); err == nil {
			t.Errorf("subPath %s gave %s", path, got)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("made outside the volume: %v", entries)
	}
	if n := len(mountsBelow(t, f.root)); n != 0 {
		t.Errorf("%d mounts were made", n)
	}
}

// An administrator's link to the release that is in use has its whole path.
func TestALinkOfTheHostThatStaysInTheHostPathIsFollowed(t *testing.T) {
	f := onKernel(t)
	app, outside := filepath.Join(t.TempDir(), "app"), t.TempDir()
	if err := os.MkdirAll(filepath.Join(app, "releases/7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(app, "releases/7/version"), []byte("7"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		app + "/current": app + "/releases/7", app + "/chain": app + "/current", app + "/up": app + "/releases/../releases/7",
		app + "/out": outside, app + "/back": outside + "/../" + filepath.Base(outside), app + "/dangling": app + "/none", app + "/loop": app + "/loop",
		outside + "/in": app,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	pod := podWith(v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: outside + "/in"}}})
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"current", "chain", "up", "current/new/dir"} {
		path, err := f.set.SubPath(t.Context(), pod, "c", i, "h", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if data, err := os.ReadFile(filepath.Join(path, "version")); string(data) != "7" && name != "current/new/dir" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(app, "releases/7/new/dir")); err != nil || !info.IsDir() {
		t.Errorf("the missing directory: %v", err)
	}
	for _, name := range []string{"out", "back", "out/x", "dangling", "loop"} {
		if got, err := f.set.SubPath(t.Context(), pod, "c", 9, "h", name); err == nil {
			t.Errorf("subPath %s gave %s", name, got)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("made outside the volume: %v", entries)
	}
}

func TestTeardownFollowsNoSymlinkAndEntersNoMount(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(volume, "foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(outside, foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err == nil || !strings.Contains(err.Error(), "mount point") {
		t.Errorf("err = %v, want it to name the mount point", err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "mine" {
		t.Fatalf("the file behind the mount: %q, %v", data, err)
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume); !os.IsNotExist(err) {
		t.Errorf("the volume is still there: %v", err)
	}
	if _, err := os.ReadFile(kept); err != nil {
		t.Errorf("the file behind the symlink is gone: %v", err)
	}
}

func TestAVeryDeepTreeIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 3000 // longer than any path can be
	for range depth {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
	if err := removeTree(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}
