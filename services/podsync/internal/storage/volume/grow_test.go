package volume

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// grower grows each volume once, when it is mounted.
type grower struct {
	mu    sync.Mutex
	asked []growth.Volume
	left  []types.UID
	err   error
}

func (g *grower) AtMount(ctx context.Context, v growth.Volume, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) error {
	g.mu.Lock()
	g.asked = append(g.asked, v)
	g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	return v.Grow(ctx, resource.MustParse("2Gi"))
}

func (g *grower) Leave(uid types.UID) { g.left = append(g.left, uid) }

// expands is drives with an Expander.
type expands struct {
	*drives
	to []string
}

func (d *expands) Expand(_ context.Context, r Request, to resource.Quantity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = append(d.to, r.PV.Name+" "+to.String())
	return nil
}

func TestAVolumeOfAClaimGrowsBeforeItCountsAsSetUp(t *testing.T) {
	f, d := withAttacher(t)
	g, e := &grower{err: errors.New("no")}, &expands{drives: d}
	f.set.deps.Growth, f.set.deps.CSI = g, e
	f.bind("c", "pv", csiPV())
	pod := podWith(claimVolume("v", "c"))
	for range 2 {
		err := f.set.Setup(t.Context(), pod)
		fails(t, err, `MountVolume.Setup failed while expanding volume for volume "pv" : no`)
		if failed := (podstate.VolumeErrors)(nil); !errors.As(err, &failed) || len(failed.Standing()) != 0 {
			t.Error("its pod uses it before it is grown")
		}
	}
	g.err = nil
	for range 2 {
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.asked) != 3 || g.asked[0].Claim != "c" || g.asked[0].Pod.UID != "uid-1" || g.asked[0].ReadOnly || len(e.to) != 1 || e.to[0] != "pv 2Gi" {
		t.Errorf("asked %+v, grown %q", g.asked, e.to)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || len(g.left) != 1 || g.left[0] != "uid-1" {
		t.Errorf("%v, left %q", err, g.left)
	}
}

func TestWhatCannotGrowIsNotAskedTo(t *testing.T) {
	f := newFixture(t)
	g := &grower{}
	f.set.deps.Growth = g
	f.bind("c", "pv", hostPathPV(t.TempDir()))
	f.bind("l", "local", localPV(t.TempDir())) // has the size of its filesystem
	pod := podWith(claimVolume("v", "c"), claimVolume("l", "l"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if len(g.asked) != 1 || g.asked[0].Claim != "l" {
		t.Errorf("asked %+v", g.asked)
	}
}

func TestTheFilesystemOfALocalDeviceGrowsWhileItIsMounted(t *testing.T) {
	f := onDevice(t)
	g := &grower{}
	f.set.deps.Growth = g
	f.bind("c", "pv", localPV(f.device))
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err != nil {
		t.Fatal(err)
	}
	path, _ := f.set.HostPath("uid-1", "v")
	blocks := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks
	}
	before := blocks()
	raw, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(f.device), "loop/backing_file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(strings.TrimSpace(string(raw)), 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", "--set-capacity", f.device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err = g.asked[0].Grow(t.Context(), resource.MustParse("64Mi"))
	switch {
	case err != nil && strings.Contains(err.Error(), "Permission denied to resize filesystem"):
		t.Skip("the kernel grows no filesystem that is mounted without CAP_SYS_RESOURCE")
	case err != nil:
		t.Fatal(err)
	}
	if now := blocks(); now < 3*before {
		t.Errorf("the filesystem has %d blocks, and had %d", now, before)
	}
}

// hanging is a Mounter whose filesystems do not grow.
type hanging struct{ *mount.Fake }

func (hanging) Resize(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestALocalDeviceThatDoesNotGrowLeavesItsVolumeToOthers: the program that grows it may
// hang in the kernel, and pods that have the volume are to end all the same.
func TestALocalDeviceThatDoesNotGrowLeavesItsVolumeToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.deps.Mounter = hanging{f.mounts}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: localPV("/dev/d")}}
		dir := f.set.volumeDir("uid-1", pluginLocal, "pv")
		if err := makeDir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := f.mounts.Bind("/dev/d", dir); err != nil {
			t.Fatal(err)
		}
		err := f.set.growMounted(t.Context(), pv, dir)
		kind := (*growth.Error)(nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &kind) || kind.Kind != growth.Uncertain {
			t.Errorf("%v", err)
		}
		done, err := f.set.handles.TakeWithin(t.Context(), "pv")
		if err != nil {
			t.Fatal(err)
		}
		done()
	})
}

func TestTheFilesystemOfALocalDeviceGrowsWhereItIsMounted(t *testing.T) {
	f := onDevice(t)
	g := &grower{}
	f.set.deps.Growth = g
	f.bind("c", "pv", localPV(f.device))
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err != nil {
		t.Fatal(err) // it was grown, and had its size
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := g.asked[0].Grow(t.Context(), resource.MustParse("64Mi")); err == nil {
		t.Error("it was grown although it is mounted no more")
	}
}
