package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// TestALocalVolumeWhoseServerDoesNotAnswerIsLookedAtByAnotherProcess, and its pod's end
// does not wait for that.
func TestALocalVolumeWhoseServerDoesNotAnswerIsLookedAtByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		others := &processes{do: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		f.set.deps.Apart, f.set.deps.Pods = others, nil
		dead := t.TempDir()
		if err := f.mounts.Remote(t.Context(), "s:/d", dead, "nfs", nil); err != nil {
			t.Fatal(err)
		}
		f.bind("c", "pv", localPV(filepath.Join(dead, "a")))
		err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c")))
		at := f.set.volumeDir("uid-1", pluginLocal, "pv")
		if !errors.Is(err, errNoLocalServer) || !slices.Equal(others.all(), []string{"local-path " + filepath.Join(dead, "a") + " " + at}) {
			t.Errorf("%v, asked for %q", err, others.all())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.set.Setup(ctx, podWith(claimVolume("v", "c"))); err == nil {
			t.Error("it is set up")
		}
		began := time.Now()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// served has a local volume lie with a server, whose files podsync cannot see here.
func served(t *testing.T, f *fixture) (path string) {
	t.Helper()
	server := filepath.Join(t.TempDir(), "gone")
	if err := errors.Join(os.Mkdir(server, 0o750), f.mounts.Remote(t.Context(), "s:/d", server, "nfs", nil), os.Remove(server)); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(server, "a")
	f.bind("c", "pv", localPV(path)).Spec.MountOptions = []string{"noexec"}
	return path
}

// TestALocalVolumeWhoseServerDiesAfterTheLookIsNeverLookedAtByPodsync: who mounts it and
// gives its files away is another process, too.
func TestALocalVolumeWhoseServerDiesAfterTheLookIsNeverLookedAtByPodsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		path, at := served(t, f), f.set.volumeDir("uid-1", pluginLocal, "pv")
		var failing error
		others := &processes{}
		others.do = func(ctx context.Context) error {
			if asked := others.all(); strings.HasPrefix(asked[len(asked)-1], callLocal) {
				if mounted, err := f.mounts.Mounted(at); mounted || err != nil {
					return err
				}
				return f.mounts.Remote(ctx, "s:/d", at, "nfs", nil)
			}
			return failing
		}
		f.set.deps.Apart = others
		pod := withGroup(podWith(claimVolume("v", "c")), 4711)
		failing = errors.New("the server is gone")
		if err := f.set.Setup(t.Context(), pod); !errors.Is(err, failing) {
			t.Fatal(err)
		}
		failing = nil
		f.set.state("uid-1").bound = map[string]bound{} // as after a restart
		for range 2 {
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		look, give := "local-path "+path+" "+at+" noexec", `give-to-group {"root":"`+at+`","group":4711,"skip":true}`
		if got, want := others.all(), []string{look, give, look, give}; !slices.Equal(got, want) {
			t.Errorf("asked for %q, want %q", got, want)
		}
		if infos := f.set.Volumes("uid-1"); len(infos) != 1 || infos[0] != (Info{Name: "v", HostPath: at, PVCName: "c", Driven: true}) {
			t.Errorf("shown: %+v", infos)
		}
		if usage, err := f.set.Usage(t.Context(), "uid-1", "v"); err != nil || usage.Driver != "kubernetes.io/local-volume" || usage.Used != 4 {
			t.Errorf("usage %+v, %v", usage, err)
		}
		if _, err := f.set.SubPath(t.Context(), pod, "main", 0, "v", "x"); err != nil {
			t.Error(err)
		}
		f.set.deps.Mounter = &deadServer{Fake: f.mounts}
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Error(err)
		}
	})
}

// TestALocalVolumeOfAServerThatIsMountedLateIsGivenToThePodsGroup: by who was given up, before
// the next try.
func TestALocalVolumeOfAServerThatIsMountedLateIsGivenToThePodsGroup(t *testing.T) {
	f := newFixture(t)
	served(t, f)
	at := f.set.volumeDir("uid-1", pluginLocal, "pv")
	late := errors.New("not in time")
	others := &processes{do: func(context.Context) error { return late }}
	f.set.deps.Apart = others
	pod := withGroup(podWith(claimVolume("v", "c")), 4711)
	if err := f.set.Setup(t.Context(), pod); !errors.Is(err, late) {
		t.Fatal(err)
	}
	if err := f.mounts.Remote(t.Context(), "s:/d", at, "nfs", nil); err != nil {
		t.Fatal(err)
	}
	late = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if want := `give-to-group {"root":"` + at + `","group":4711,"skip":true}`; !slices.Contains(others.all(), want) {
		t.Errorf("asked for %q, and not for %s", others.all(), want)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Error(err)
	}
	if _, kept := f.set.keptBound("uid-1", "v"); kept {
		t.Error("it is kept what a pod that is gone was given")
	}
}

// TestALocalVolumeOfAServerStandsThoughThatDoesNotAnswerAnyMore, once it was set up.
func TestALocalVolumeOfAServerStandsThoughThatDoesNotAnswerAnyMore(t *testing.T) {
	f := newFixture(t)
	served(t, f)
	at := f.set.volumeDir("uid-1", pluginLocal, "pv")
	var silent error
	others := &processes{do: func(ctx context.Context) error {
		if silent != nil {
			return silent
		}
		return f.mounts.Remote(ctx, "s:/d", at, "nfs", nil)
	}}
	f.set.deps.Apart = others
	pod := podWith(claimVolume("v", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	silent = errNoLocalServer
	f.set.state("uid-1").bound = map[string]bound{}
	f.set.state("uid-1").paths = map[string]string{}
	err := f.set.Setup(t.Context(), pod)
	if path, is := f.set.HostPath("uid-1", "v"); !errors.Is(err, errNoLocalServer) || path != at || !is {
		t.Errorf("%v, at %q", err, path)
	}
}

func TestADeviceIsNotTakenFromAServer(t *testing.T) {
	if err := newFixture(t).set.checkLocalBlock("/mnt/server/disk", true); err == nil || !strings.Contains(err.Error(), "name the device in local.path by its path in /dev") {
		t.Error(err)
	}
}

// TestALocalPathIsMountedApartAsItIs, once, with its options.
func TestALocalPathIsMountedApartAsItIs(t *testing.T) {
	f := onKernel(t)
	dir, at := t.TempDir(), filepath.Join(f.root, "at")
	write(t, filepath.Join(dir, "file"), 0o600)
	if err := os.Chown(dir, 0, 4711); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mount.New(mount.Config{}).Unmount(at) })
	for path, want := range map[string]string{"/no": "no such file", dir + "/file": "only directory and block device", dir + "/../x": "must not contain"} {
		if _, err := localCall([]string{path, at}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for range 2 {
		if owner, err := localCall([]string{dir, at, "noexec"}); owner != "4711" || err != nil {
			t.Fatalf("%q, %v", owner, err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 || len(mountsBelow(t, f.root)) != 1 {
		t.Errorf("%v, flags %x, mounts %v", err, st.Flags, mountsBelow(t, f.root))
	}
	if _, err := os.Stat(filepath.Join(at, "file")); errors.Is(err, fs.ErrNotExist) {
		t.Error("it is another directory")
	}
}
