package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func withGroup(pod *v1.Pod, group int64) *v1.Pod {
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	return pod
}

func TestALocalVolumeIsMountedWithItsOptionsAndKeepsItsData(t *testing.T) {
	f := onKernel(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub/data"), 0o600)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	f.bind("c", "pv", localPV(link)).Spec.MountOptions = []string{"noexec"}
	pod := withGroup(podWith(claimVolume("v", "c")), 4711)
	for range 2 {
		f.set.state("uid-1").bound = map[string]bound{} // as after a restart
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	at, _ := f.set.HostPath("uid-1", "v")
	if at != filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~local-volume/pv") || len(mountsBelow(t, f.root)) != 1 {
		t.Errorf("at %s, mounts %v", at, mountsBelow(t, f.root))
	}
	is(t, filepath.Join(at, "sub/data"), 4711, 0o660)
	is(t, at, 4711, fs.ModeSetgid|0o775)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_RDONLY != 0 {
		t.Errorf("%v, flags %x", err, st.Flags)
	}
	if infos := f.set.Volumes("uid-1"); len(infos) != 1 || infos[0] != (Info{Name: "v", HostPath: at, PVCName: "c"}) {
		t.Errorf("shown: %+v", infos)
	}
	sub, err := f.set.SubPath(t.Context(), pod, "c", 0, "v", "sub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(sub, "data")); err != nil {
		t.Errorf("a part of it: %v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/data")); err != nil || len(mountsBelow(t, f.root)) != 0 {
		t.Errorf("after the pod: %v, mounts %v", err, mountsBelow(t, f.root))
	}
}

func TestAReadOnlyClaimIsMountedReadOnlyAndGivenToNobody(t *testing.T) {
	f := onKernel(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "data"), 0o600)
	f.bind("c", "pv", localPV(dir))
	v := claimVolume("v", "c")
	v.PersistentVolumeClaim.ReadOnly = true
	if err := f.set.Setup(t.Context(), withGroup(podWith(v), 4711)); err != nil {
		t.Fatal(err)
	}
	at, _ := f.set.HostPath("uid-1", "v")
	if err := os.WriteFile(filepath.Join(at, "data"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
	is(t, filepath.Join(dir, "data"), 0, 0o600)
}

func TestALocalVolumeThatAnotherPodUsesStaysItsGroups(t *testing.T) {
	f := onKernel(t)
	dir := t.TempDir()
	f.bind("c", "pv", localPV(dir))
	other := named(withGroup(podWith(claimVolume("v", "c")), 4711), "other")
	t.Cleanup(func() { _ = unix.Unmount(f.set.volumeDir(other.UID, pluginLocal, "pv"), unix.MNT_DETACH) })
	if err := f.set.Setup(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), withGroup(podWith(claimVolume("v", "c")), 4712)); err != nil {
		t.Fatal(err)
	}
	is(t, dir, 4711, fs.ModeSetgid|0o775)
	want := "p: AlreadyMountedVolume: The requested fsGroup is 4712, but the volume pv has GID 4711. The volume may not be shareable."
	if got := f.events.all(); !slices.Equal(got, []string{want}) {
		t.Errorf("events %q", got)
	}
}

func TestWhatIsNoDirectoryIsNoLocalVolume(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), 0o600)
	for path, want := range map[string]string{
		"":            "local volume source is nil or local path is not set",
		"/tmp/../x":   "invalid path: /tmp/../x must not contain '..'",
		dir + "/no":   "open " + dir + "/no: no such file or directory",
		dir + "/file": "only directory and block device are supported",
	} {
		f.bind("c", "pv", localPV(path))
		fails(t, f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))), `MountVolume.SetUp failed for volume "pv" : `+want)
	}
	f.bind("c", "pv", localPV(dir)).Spec.MountOptions = []string{"data=journal"}
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err == nil || !strings.Contains(err.Error(), `mount option "data=journal" is none`) {
		t.Errorf("%v", err)
	}
}

// TestALinkInAVolumeOfTheHostMayLeadToItsOwnDirectory: whole paths of the host are
// followed there, as in a hostPath of the pod itself.
func TestALinkInAVolumeOfTheHostMayLeadToItsOwnDirectory(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "real/f"), 0o600)
	if err := os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	f.bind("c", "pv", hostPathPV(dir)).Spec.HostPath.Type = ptr.To(v1.HostPathDirectory)
	pod := podWith(claimVolume("v", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "c", 0, "v", "link"); err != nil {
		t.Error(err)
	}
}
