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
	f.set.deps.Mounter = mount.New(mount.Config{Devices: filepath.Join(t.TempDir(), "devices")})
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
