package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// mountSilent mounts a filesystem whose process answers nothing until the test ends.
func mountSilent(t *testing.T, at string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	if err := unix.Mount("silent", at, "fuse.silent", 0, fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,fd=%d", fuse.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = fuse.Close()
		_ = unix.Unmount(at, unix.MNT_DETACH)
	})
}

// A container with Bidirectional propagation mounts a filesystem on the emptyDir that it shares
// with the others: whose files are its own.
func TestWhatAPodHasMountedOnItsEmptyDirIsLeftAlone(t *testing.T) {
	for name, again := range map[string]func(f *fixture, pod *v1.Pod){
		"podsync is started anew": func(f *fixture, _ *v1.Pod) {
			kernel := f.set.deps.Mounter
			f.set = f.restarted()
			f.set.deps.Mounter = kernel
		},
		"a label is changed": func(_ *fixture, pod *v1.Pod) { pod.Labels["app"] = "y" },
	} {
		t.Run(name, func(t *testing.T) {
			f := onKernel(t)
			pod := withGroup(podWith(emptyDirVolume("e")), 4711)
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			dir, _ := f.set.HostPath("uid-1", "e")
			if err := unix.Mount("bucket", dir, "tmpfs", 0, "mode=0700"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
			file := filepath.Join(dir, "private")
			if err := os.WriteFile(file, []byte("key"), 0o600); err != nil {
				t.Fatal(err)
			}
			pod = pod.DeepCopy()
			again(f, pod)
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Error(err)
			}
			root, err1 := os.Stat(dir)
			info, err2 := os.Stat(file)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if st := info.Sys().(*syscall.Stat_t); root.Mode().Perm() != 0o700 || st.Gid != 0 || info.Mode().Perm() != 0o600 {
				t.Errorf("its root has mode %o; a file of it has group %d and mode %o", root.Mode().Perm(), st.Gid, info.Mode().Perm())
			}
		})
	}
}

func TestWhatIsMountedOnAnEmptyDirIsWaitedForByNoSetUp(t *testing.T) {
	for name, mounts := range map[string]func(t *testing.T, at string){"silent": mountSilent, "dead": mountDead} {
		t.Run(name, func(t *testing.T) {
			f := onKernel(t)
			pod := podWith(emptyDirVolume("e"))
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			dir, _ := f.set.HostPath("uid-1", "e")
			mounts(t, dir)
			defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
			kernel := f.set.deps.Mounter
			f.set = f.restarted()
			f.set.deps.Mounter = kernel
			done := make(chan error, 1)
			go func() { done <- f.set.Setup(t.Context(), pod) }()
			select {
			case err := <-done:
				if path, ok := f.set.HostPath("uid-1", "e"); err != nil || !ok || path != dir {
					t.Errorf("the volume is not known: %q, %v", path, err)
				}
			case <-time.After(time.Minute):
				t.Error("it is waited for who answers for what is mounted there")
			}
		})
	}
}

func TestAVolumeForOnePodIsInUseThoughTheServerOfAnotherPodsDoesNotAnswer(t *testing.T) {
	for name, mounts := range map[string]func(t *testing.T, at string){"silent": mountSilent, "dead": mountDead} {
		for plugin, source := range map[string]v1.PersistentVolumeSource{
			pluginNFS: {NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e"}}, pluginLocal: localPV(t.TempDir()),
		} {
			t.Run(name+plugin, func(t *testing.T) {
				f := onKernel(t)
				f.bind("c", "pv", source).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
				at := filepath.Join(f.root, "pods/uid-a/volumes", plugin, "pv")
				if err := os.MkdirAll(at, 0o750); err != nil {
					t.Fatal(err)
				}
				mounts(t, at)
				defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
				second := named(podWith(claimVolume("v", "c")), "b")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := f.set.Setup(ctx, second); !errors.Is(err, claims.ErrInUse) {
					t.Errorf("the second is not told that the volume is in use: %v", err)
				}
				if err := f.set.Teardown(t.Context(), second.UID); err != nil {
					t.Errorf("the second pod does not end: %v", err)
				}
			})
		}
	}
}

// autofsDriver is a CSI driver whose volumes are of an automounter that answers nothing.
type autofsDriver struct{ to, group int }

func (d autofsDriver) Setup(_ context.Context, r Request) (Made, error) {
	path := filepath.Join(r.Dir, csiMount)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return Made{}, err
	}
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect", d.to, d.group)
	return Made{Path: path}, unix.Mount("automount", path, "autofs", 0, options)
}

func (autofsDriver) Teardown(_ context.Context, v Remains) error {
	return errors.Join(unix.Unmount(filepath.Join(v.Dir, csiMount), unix.MNT_DETACH), os.RemoveAll(v.Dir))
}

func TestASubPathBelowAnAutomounterThatDoesNotAnswerLeavesThePodsTurnFree(t *testing.T) {
	f := onKernel(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "sleep", "1000")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = daemon.Process.Kill(), daemon.Wait() }()
	d := autofsDriver{pipe[1], daemon.Process.Pid}
	f.set.deps.CSI, f.set.drivers[pluginCSI] = d, d
	pod := podWith(csiVolume("v", "cvmfs"))
	if err := f.set.Setup(t.Context(), pod); errors.Is(err, unix.ENODEV) {
		t.Skip("the kernel has no autofs")
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	f.waitsForNobody(t, pod, "v", "alice.cern.ch/data", func() {})
}

func TestASubPathBelowWhatAContainerHasMountedInAnEmptyDirLeavesThePodsTurnFree(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	path, _ := f.set.HostPath("uid-1", "e")
	at := filepath.Join(path, "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mountSilent(t, at)
	if whose, err := f.set.askedForSubPath(pod, "e", path, "beside/data", false); whose != "" || err != nil {
		t.Errorf("of what lies beside it %q is asked: %v", whose, err)
	}
	f.waitsForNobody(t, pod, "e", "mnt/data", func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// waitsForNobody asks for a subPath of which nobody says anything, and ends the pod after
// release.
func (f *fixture) waitsForNobody(t *testing.T, pod *v1.Pod, volume, path string, release func()) {
	t.Helper()
	f.set.deps.Apart = apart.New(apart.Config{Most: 1, MostOfOne: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := f.set.SubPath(ctx, pod, "main", 0, volume, path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it was found")
		}
	case <-time.After(time.Minute):
		t.Fatal("it is waited for who answers for it, beyond the end of the context")
	}
	free, leave := context.WithTimeout(t.Context(), 10*time.Second)
	defer leave()
	if _, out, err := f.set.enter(free, pod.UID); err != nil {
		t.Errorf("the pod's turn is taken: %v", err)
	} else {
		out()
	}
	release()
	if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
		t.Errorf("the pod does not end: %v", err)
	}
}
