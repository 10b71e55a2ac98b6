package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeDriver makes directories; hang keeps Setup until it is closed.
type fakeDriver struct {
	mu    sync.Mutex
	calls []string
	hang  chan struct{}
	fail  error
}

func (d *fakeDriver) note(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
	return d.fail
}

func (d *fakeDriver) Setup(ctx context.Context, r Request) (Made, error) {
	if d.hang != nil {
		select {
		case <-d.hang:
		case <-ctx.Done():
			return Made{}, ctx.Err()
		}
	}
	if err := d.note("setup " + string(r.Pod.UID) + "/" + r.Volume.Name + " " + r.Volume.CSI.Driver); err != nil {
		return Made{}, err
	}
	path := filepath.Join(r.Dir, "mount")
	return Made{Path: path}, os.MkdirAll(path, 0o750)
}

func (d *fakeDriver) Teardown(_ context.Context, v Remains) error {
	if err := d.note("teardown " + string(v.UID) + "/" + v.Name); err != nil {
		return err
	}
	return os.RemoveAll(v.Dir)
}

func csiVolume(name, driver string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driver}}}
}

// panicking is a driver whose code, or that of a library that it calls, is at fault.
type panicking struct{}

func (panicking) Setup(context.Context, Request) (Made, error) { panic("in Setup") }
func (panicking) Teardown(context.Context, Remains) error      { panic("in Teardown") }

func TestAPanicIsTheFailureOfTheVolumeThatItIsOf(t *testing.T) {
	f := withCSI(t, panicking{})
	pod := podWith(csiVolume("hostile", "d"), emptyDirVolume("data"))
	err := f.set.Setup(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), `hostile of pod uid-1 panicked: in Setup`) {
		t.Errorf("set up: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/data")); err != nil {
		t.Errorf("the other volume: %v", err)
	}
	err = f.set.work(t.Context(), pod.UID, "hostile pv", func(context.Context, *chown) error { panic("in the work") })
	if err == nil || !strings.Contains(err.Error(), "hostile pv of pod uid-1 panicked: in the work") {
		t.Errorf("work: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~csi/hostile"), 0o750); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = f.set.Teardown(ctx, pod.UID)
	if err == nil || !strings.Contains(err.Error(), "taking volume hostile down panicked: in Teardown") {
		t.Errorf("taken down: %v", err)
	}
}

// withCSI is a fixture whose volumes of CSI drivers are made by d.
func withCSI(t *testing.T, d Driver) *fixture {
	t.Helper()
	f := newFixture(t)
	f.set = New(Config{RootDir: f.root}, Deps{Objects: f.objects, Tokens: f.tokens, Mounter: f.mounts, Pods: waiting(f.changed), CSI: d})
	return f
}

func TestAVolumeIsMadeByTheDriverOfItsPluginAndTakenDownByWhatLiesOnTheDisk(t *testing.T) {
	d := &fakeDriver{}
	f := withCSI(t, d)
	if err := f.set.Setup(t.Context(), podWith(csiVolume("v", "a.example"), emptyDirVolume("e"))); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(f.root, "pods", "uid-1", "volumes", "kubernetes.io~csi", "v", "mount")
	if path, ok := f.set.HostPath("uid-1", "v"); !ok || path != want {
		t.Errorf("the volume lies at %q, want %q", path, want)
	}
	again := withCSI(t, d) // it knows of no pod
	again.set.cfg.RootDir = f.root
	if err := again.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.calls, "; "); got != "setup uid-1/v a.example; teardown uid-1/v" {
		t.Errorf("the driver was asked for %q", got)
	}
	if _, err := os.Lstat(filepath.Join(f.root, "pods", "uid-1", "volumes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func TestADriverThatFailsHoldsUpNoOtherVolume(t *testing.T) {
	d := &fakeDriver{fail: errors.New("no space")}
	f := withCSI(t, d)
	err := f.set.Setup(t.Context(), podWith(csiVolume("v", "a.example"), emptyDirVolume("e")))
	if err == nil || err.Error() != `MountVolume.SetUp failed for volume "v" : no space` {
		t.Fatalf("the error is %v", err)
	}
	if _, ok := f.set.HostPath("uid-1", "e"); !ok {
		t.Error("the other volume is not there")
	}
}

func TestAVolumeOfAPluginThatIsNotHereIsNamedAndAnEmptyDirectoryRemoved(t *testing.T) {
	f := newFixture(t)
	volumes := filepath.Join(f.root, "pods", "uid-1", "volumes")
	for _, dir := range []string{"kubernetes.io~rbd/empty", "kubernetes.io~rbd/full/file", "example.com~flex/empty"} {
		if err := os.MkdirAll(filepath.Join(volumes, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	err := f.set.Teardown(t.Context(), "uid-1")
	full := filepath.Join(volumes, "kubernetes.io~rbd", "full")
	if err == nil || !strings.Contains(err.Error(), `volume "full" is of plugin kubernetes.io/rbd, which this node has no driver of; unmount what is at and below `+full) {
		t.Fatalf("the error is %v", err)
	}
	if err := os.RemoveAll(full); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Error(err)
	}
}

// A refresh that would wait for a driver that hangs would take a hand from all pods,
// whatever their namespace.
func TestPodsWhoseDriverHangsTakeNoHandFromTheOthersRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{hang: make(chan struct{})}
		f := withCSI(t, d)
		ctx, stop := f.runs(t)
		var hanging []types.UID
		var ended []chan error
		for _, namespace := range []string{"a", "b", "c", "d", "e", "f"} {
			f.objects.maps[namespace+"/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "old"}}
			pod := podWith(configMapVolume("v", "cm"), csiVolume("c", "a.example"))
			pod.Namespace, pod.UID = namespace, types.UID(namespace)
			if err := f.set.Setup(ctx, pod, "v"); err != nil {
				t.Fatal(err)
			}
			hanging = append(hanging, pod.UID)
			done := make(chan error, 1)
			ended = append(ended, done)
			go func() { done <- f.set.Setup(ctx, pod, "c") }()
		}
		synctest.Wait()
		for _, uid := range hanging {
			f.objects.maps[string(uid)+"/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "new"}}
		}
		f.set.ObjectChanged(hanging)
		synctest.Wait()
		f.objects.setMap("cm", map[string]string{"k": "old"})
		if err := f.set.Setup(ctx, podWith(configMapVolume("v", "cm"))); err != nil {
			t.Fatal(err)
		}
		f.objects.setMap("cm", map[string]string{"k": "new"})
		f.set.ObjectChanged([]types.UID{"uid-1"})
		synctest.Wait()
		if got := f.files(t, "v")["k"]; got != "new" {
			t.Errorf("while the driver hangs, the file of another pod holds %q", got)
		}
		close(d.hang)
		for _, done := range ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		for _, uid := range hanging {
			dir, _ := f.set.HostPath(uid, "v")
			if got := readFiles(t, dir)["k"]; got != "new" {
				t.Errorf("pod %s, whose volumes were being set up, holds %q afterwards", uid, got)
			}
		}
		stop()
	})
}
