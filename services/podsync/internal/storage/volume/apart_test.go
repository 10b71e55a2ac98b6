package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// processes stands in for those that do calls: they do what do says.
type processes struct {
	mu    sync.Mutex
	asked []string
	do    func(ctx context.Context) error
}

func (p *processes) Do(ctx context.Context, _, call string, args ...string) (string, error) {
	p.mu.Lock()
	p.asked = append(p.asked, call+" "+strings.Join(args, " "))
	p.mu.Unlock()
	return "", p.do(ctx)
}

// Follow is Do of what gives files away, which leaves none.
func (p *processes) Follow(ctx context.Context, whose string, _ func(string), call string, args ...string) (string, error) {
	_, err := p.Do(ctx, whose, call, args...)
	return `{"files":0}`, err
}

func (p *processes) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func TestASubPathOfAServersVolumeIsLookedUpByAnotherProcess(t *testing.T) {
	f := newFixture(t)
	others := &processes{do: func(context.Context) error { return nil }}
	f.set.deps.Apart = others
	f.bind("c", "pv", nfsPV("s", "/claimed"))
	pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), claimVolume("c", "c"), emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(f.root, "pods", "uid-1", "volumes", "kubernetes.io~nfs")
	var want []string
	for volume, dir := range map[string]string{"v": "v", "c": "pv", "e": ""} {
		target, err := f.set.SubPath(t.Context(), pod, "main", 3, volume, "./a/b")
		at := filepath.Join(f.root, "pods", "uid-1", "volume-subpaths", volume, "main", "3")
		if err != nil || target != at {
			t.Errorf("%s: %s, %v", volume, target, err)
		}
		if dir != "" {
			want = append(want, "subpath "+filepath.Join(below, dir)+" a/b "+at)
		}
	}
	got := others.all()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "main", 3, "v", "../x"); err == nil || len(others.all()) != 2 {
		t.Errorf("what leads out is looked up: %v", err)
	}
}

// TestASubPathWhoseServerDoesNotAnswerHoldsUpNothingElseOfItsPod: it is said after a
// minute, and the pod's end does not wait for that.
func TestASubPathWhoseServerDoesNotAnswerHoldsUpNothingElseOfItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		others := &processes{do: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		f.set.deps.Apart, f.set.deps.Pods = others, nil
		pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), emptyDirVolume("e"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := f.set.SubPath(t.Context(), pod, "main", 0, "v", "a")
		if !errors.Is(err, errNoServer) || !strings.Contains(err.Error(), `subPath "a" of volume "v": `) || time.Since(began) != subPathWithin {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for range 2 { // whoever tries again waits for the same one
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := f.set.SubPath(ctx, pod, "main", 0, "v", "a"); err == nil {
				t.Error("it is there")
			}
			cancel()
		}
		if n := len(others.all()); n != 2 {
			t.Errorf("%d processes were asked", n)
		}
		began = time.Now()
		if _, err := f.set.SubPath(t.Context(), pod, "main", 1, "e", "a"); err != nil {
			t.Error(err)
		}
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := f.set.SubPath(t.Context(), pod, "main", 0, "v", "a"); err == nil || len(others.all()) != 2 {
			t.Errorf("what is taken down is looked up: %v", err)
		}
	})
}

// deadServer is a Mounter whose server does not answer when something is unmounted.
type deadServer struct {
	*mount.Fake
	mu    sync.Mutex
	ended []string
}

func (d *deadServer) UnmountRemote(ctx context.Context, target string) error {
	time.Sleep(time.Minute)
	d.mu.Lock()
	d.ended = append(d.ended, target)
	d.mu.Unlock()
	return d.Fake.Unmount(target)
}

// Unmount would wait in the kernel.
func (d *deadServer) Unmount(target string) error {
	if served, _ := d.Served(target); served[target] {
		return errors.New("a server is asked by a thread of podsync")
	}
	return d.Fake.Unmount(target)
}

// TestADeadServersVolumesAndSubPathsAreWaitedForTogether: and not by podsync itself.
func TestADeadServersVolumesAndSubPathsAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		dead := &deadServer{Fake: f.mounts}
		f.set.deps.Mounter = dead
		pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}), nfsVolume("w", v1.NFSVolumeSource{Server: "s", Path: "/e"}), emptyDirVolume("e"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		for i, volume := range []string{"v", "w", "w", "e"} {
			if _, err := f.set.SubPath(t.Context(), pod, "main", i, volume, "a"); err != nil { // nothing is apart here
				t.Fatal(err)
			}
		}
		for _, volume := range []string{"v", "w"} { // the server's, here on the disk
			if err := os.Remove(filepath.Join(f.set.volumeDir("uid-1", pluginNFS, volume), "a")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || time.Since(began) != 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if len(dead.ended) != 5 || len(f.mounts.Mounts()) != 0 {
			t.Errorf("ended %q, left %q", dead.ended, f.mounts.Mounts())
		}
	})
}

// TestNoSubPathIsLookedUpWhileItsVolumesAreTakenDown: it would be mounted where nobody
// looks any more.
func TestNoSubPathIsLookedUpWhileItsVolumesAreTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		others := &processes{do: func(context.Context) error { return nil }}
		f.set.deps.Apart, f.set.deps.Mounter = others, &deadServer{Fake: f.mounts}
		pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path, _ := f.set.HostPath("uid-1", "v") // as who has looked for it before
		done := make(chan error, 1)
		go func() { done <- f.set.Teardown(t.Context(), "uid-1") }()
		time.Sleep(time.Second)
		if err := f.set.subPathApart(t.Context(), "uid-1", "v", path, "a", "/target"); !errors.Is(err, errTornDown) || len(others.all()) != 0 {
			t.Errorf("%v, asked for %q", err, others.all())
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// whoseMounts notes for which namespace servers are asked.
type whoseMounts struct {
	*mount.Fake
	whose []string
}

func (w *whoseMounts) UnmountRemote(ctx context.Context, target string) error {
	w.whose = append(w.whose, apart.Namespace(ctx))
	return w.Fake.UnmountRemote(ctx, target)
}

func (w *whoseMounts) Statfs(ctx context.Context, path string) (unix.Statfs_t, error) {
	w.whose = append(w.whose, apart.Namespace(ctx))
	return w.Fake.Statfs(ctx, path)
}

// TestACallIsDoneForTheNamespaceOfItsPod: of each namespace there are so many at once.
func TestACallIsDoneForTheNamespaceOfItsPod(t *testing.T) {
	f := newFixture(t)
	mounts := &whoseMounts{Fake: f.mounts}
	f.set.deps.Mounter = mounts
	f.set.deps.Apart = &processes{do: func(ctx context.Context) error {
		mounts.whose = append(mounts.whose, apart.Namespace(ctx))
		return nil
	}}
	pod := podWith(nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}))
	pod.Namespace = "tenant"
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	path, directory := served(t, f), v1.HostPathDirectory
	of := podWith(v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &directory}}})
	of.Namespace, of.UID = "tenant", "uid-2"
	if err := f.set.Setup(t.Context(), of); err != nil {
		t.Error(err)
	}
	if _, err := f.set.SubPath(t.Context(), pod, "main", 0, "v", "a"); err != nil {
		t.Error(err)
	}
	if _, err := f.set.Usage(t.Context(), pod.UID, "v"); err != nil {
		t.Error(err)
	}
	if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	if want := []string{"tenant", "tenant", "tenant", "tenant"}; !slices.Equal(mounts.whose, want) {
		t.Errorf("asked for %q", mounts.whose)
	}
}

func TestASubPathIsFoundByAnotherProcessAsByPodsync(t *testing.T) {
	f := onKernel(t)
	volume, target := filepath.Join(f.root, "volume"), filepath.Join(f.root, "at", "c", "0")
	if err := os.MkdirAll(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mount.New(mount.Config{}).Unmount(target) })
	for range 2 {
		if _, err := subPathCall([]string{volume, "new/dir", target}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(volume, "new/dir/file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(raw) != "x" {
		t.Errorf("%q, %v", raw, err)
	}
	if err := os.Symlink("/etc", filepath.Join(volume, "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := subPathCall([]string{volume, "out", filepath.Join(f.root, "at", "c", "1")}); err == nil {
		t.Error("a link leads out of the volume")
	}
}

// silentDriver is a CSI driver whose volumes are filesystems of a process that answers
// nothing.
type silentDriver struct{ fuse *os.File }

func (d silentDriver) Setup(_ context.Context, r Request) (Made, error) {
	path := filepath.Join(r.Dir, csiMount)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return Made{}, err
	}
	options := "rootmode=40000,user_id=0,group_id=0,fd=" + strconv.Itoa(int(d.fuse.Fd()))
	return Made{Path: path}, unix.Mount("silent", path, "fuse.silent", 0, options)
}

func (d silentDriver) Teardown(_ context.Context, v Remains) error {
	path := filepath.Join(v.Dir, csiMount)
	return errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path), os.Remove(v.Dir))
}

// TestWhoeverLooksASubPathUpEndsWithItsPod: nothing of podsync waits for a filesystem that
// answers nothing, and no process is left.
func TestWhoeverLooksASubPathUpEndsWithItsPod(t *testing.T) {
	f := onKernel(t)
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	defer fuse.Close()
	f.set.deps.CSI, f.set.drivers[pluginCSI] = silentDriver{fuse}, silentDriver{fuse}
	processes := apart.New(apart.Config{Most: 1, MostOfOne: 1})
	f.set.deps.Apart = processes
	pod := podWith(csiVolume("v", "silent"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := f.set.SubPath(ctx, pod, "main", 0, "v", "a"); err == nil || !strings.Contains(err.Error(), "it is still being set up") {
		t.Error(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := processes.Do(t.Context(), "another", callSubPath); err == nil || !strings.Contains(err.Error(), "takes a volume") {
		t.Errorf("its process is left: %v", err)
	}
}
