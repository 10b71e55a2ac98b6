package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// given makes a tree and gives it to group 4711.
func given(t *testing.T, make func(root string)) (string, *chown) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	root := t.TempDir()
	make(root)
	c := &chown{}
	if err := c.run(t.Context(), ofGroup(4711, nil), openDir(t, root)); err != nil {
		t.Fatal(err)
	}
	return root, c
}

func ofGroup(group int64, policy *v1.PodFSGroupChangePolicy) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: policy}}}
}

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

// is compares a file's group and mode.
func is(t *testing.T, path string, group uint32, mode fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Gid; got != group {
		t.Errorf("%s is of group %d, want %d", filepath.Base(path), got, group)
	}
	if info.Mode()&^fs.ModeDir != mode {
		t.Errorf("%s has mode %v, want %v", filepath.Base(path), info.Mode(), mode)
	}
}

func write(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestAVolumeIsGivenToItsGroupWithAllThatIsInIt(t *testing.T) {
	root, c := given(t, func(root string) {
		write(t, filepath.Join(root, "a/b/f"), 0o600)
		write(t, filepath.Join(root, "x"), 0o700)
	})
	is(t, root, 4711, fs.ModeSetgid|0o775)
	is(t, filepath.Join(root, "a/b"), 4711, fs.ModeSetgid|0o770)
	is(t, filepath.Join(root, "a/b/f"), 4711, 0o660)
	is(t, filepath.Join(root, "x"), 4711, 0o760)
	if n := c.files.Load(); n != 5 || c.failed != 0 {
		t.Errorf("%d files were given, %d were not", n, c.failed)
	}
}

func TestWhatALinkInAVolumeLeadsToIsNotGiven(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "f"), 0o600)
	root, _ := given(t, func(root string) {
		for name, to := range map[string]string{"file": "f", "dir": ""} {
			if err := os.Symlink(filepath.Join(outside, to), filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	})
	is(t, filepath.Join(root, "file"), 4711, fs.ModeSymlink|0o777)
	is(t, filepath.Join(outside, "f"), 0, 0o600)
	if info, err := os.Stat(outside); err != nil || info.Mode()&fs.ModeSetgid != 0 {
		t.Errorf("the directory outside: %v, %v", info.Mode(), err)
	}
}

func TestWhatIsMountedInAVolumeIsNotGiven(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "f"), 0o600)
	given(t, func(root string) {
		at := filepath.Join(root, "m")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		k := mount.New(mount.Config{})
		if err := k.Bind(outside, at); err != nil {
			t.Skipf("mounts are not allowed here: %v", err)
		}
		t.Cleanup(func() { _ = k.Unmount(at) })
	})
	is(t, filepath.Join(outside, "f"), 0, 0o600)
}

// Whoever answers for what somebody has mounted in a volume that others use, too.
func TestWhoAnswersForWhatIsMountedInAVolumeIsNotWaitedFor(t *testing.T) {
	for name, mounts := range map[string]func(t *testing.T, at string){"silent": mountSilent, "dead": mountDead} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			made(t, root, []string{"m"}, []string{"file"})
			if os.Getuid() != 0 {
				t.Skip("mounting needs root")
			}
			at := filepath.Join(root, "m")
			mounts(t, at)
			defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
			c := &chown{}
			dir := openDir(t, root)
			done := make(chan error, 1)
			go func() { done <- c.run(t.Context(), ofGroup(4711, nil), dir) }()
			select {
			case err := <-done:
				if err != nil || c.failed != 0 {
					t.Errorf("%v; %d could not be given: %v", err, c.failed, c.example)
				}
				is(t, filepath.Join(root, "file"), 4711, 0o660)
			case <-time.After(time.Minute):
				t.Error("it is waited for who answers")
			}
		})
	}
}

// A file of the host's, which somebody has mounted on one of a volume's.
func TestAFileThatIsMountedInAVolumeIsNotGiven(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "f")
	write(t, outside, 0o600)
	given(t, func(root string) {
		at := filepath.Join(root, "m")
		write(t, at, 0o600)
		k := mount.New(mount.Config{})
		if err := k.Bind(outside, at); err != nil {
			t.Skipf("mounts are not allowed here: %v", err)
		}
		t.Cleanup(func() { _ = k.Unmount(at) })
	})
	is(t, outside, 0, 0o600)
}

func TestAVolumeIsGivenHoweverDeepItsDirectoriesLie(t *testing.T) {
	deep := strings.Repeat("d/", 500)
	root, c := given(t, func(root string) { write(t, filepath.Join(root, deep, "f"), 0o600) })
	if c.failed != 0 {
		t.Errorf("%d could not be given: %v", c.failed, c.example)
	}
	is(t, filepath.Join(root, deep), 4711, fs.ModeSetgid|0o770)
	is(t, filepath.Join(root, deep, "f"), 4711, 0o660)
}

func TestGivingAVolumeAwayEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "f"), 0o600)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	cancel(gone)
	if err := new(chown).run(ctx, ofGroup(int64(os.Getgid()), nil), openDir(t, root)); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

func TestAVolumeWhoseRootIsTheGroupsIsLeftIfThePodSaysSo(t *testing.T) {
	root, _ := given(t, func(string) {})
	for _, c := range []struct {
		policy *v1.PodFSGroupChangePolicy
		group  int64
		mode   fs.FileMode
		want   bool
	}{
		{nil, 4711, 0o775 | fs.ModeSetgid, false},
		{ptr.To(v1.FSGroupChangeAlways), 4711, 0o775 | fs.ModeSetgid, false},
		{ptr.To(v1.FSGroupChangeOnRootMismatch), 4711, 0o775 | fs.ModeSetgid, true},
		{ptr.To(v1.FSGroupChangeOnRootMismatch), 4711, 0o775, false},
		{ptr.To(v1.FSGroupChangeOnRootMismatch), 4711, 0o755 | fs.ModeSetgid, false},
		{ptr.To(v1.FSGroupChangeOnRootMismatch), 4712, 0o775 | fs.ModeSetgid, false},
	} {
		if err := os.Chmod(root, c.mode); err != nil {
			t.Fatal(err)
		}
		run := &chown{}
		if err := run.run(t.Context(), ofGroup(c.group, c.policy), openDir(t, root)); err != nil || (run.files.Load() == 0) != c.want {
			t.Errorf("%+v: %d files were given, %v", c, run.files.Load(), err)
		}
		is(t, root, uint32(c.group), fs.ModeSetgid|0o775)
	}
}
