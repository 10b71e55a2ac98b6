package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// stages has the driver stage volumes.
func stages(c *fakecsi.Config) {
	c.Can = append(c.Can, spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// newStaging is a node with a driver that stages volumes, which need not be attached.
func newStaging(t *testing.T, change func(*fakecsi.Config)) *bench {
	t.Helper()
	b := newBench(t, func(c *fakecsi.Config) {
		stages(c)
		if change != nil {
			change(c)
		}
	})
	no := false
	b.cluster.driver.Spec.AttachRequired = &no
	b.cluster.driver.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	return b.register(t)
}

const handleOf = "h/1"

func (b *bench) pvDir(uid types.UID) string {
	return filepath.Join(b.root, "pods", string(uid), "volumes", "kubernetes.io~csi", "pv")
}

// claimOf is a volume of a claim that a pod wants.
func (b *bench) claimOf(uid types.UID) volume.Request {
	r := b.request()
	r.Pod.UID, r.Dir = uid, b.pvDir(uid)
	r.Pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	r.PV = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, MountOptions: []string{"noatime"},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
			Driver: driverOf, VolumeHandle: handleOf, FSType: "ext4", VolumeAttributes: map[string]string{"size": "1"},
		}},
	}}
	return r
}

// setUp sets a volume of a claim up for a pod.
func (b *bench) setUp(t *testing.T, uid types.UID) error {
	t.Helper()
	if err := b.Attach(t.Context(), b.claimOf(uid)); err != nil {
		return err
	}
	made, err := b.Setup(t.Context(), b.claimOf(uid))
	if err == nil && made.Path != filepath.Join(b.pvDir(uid), "mount") {
		t.Errorf("it lies at %q", made.Path)
	}
	return err
}

// end ends a pod.
func (b *bench) end(t *testing.T, uid types.UID) {
	t.Helper()
	if err := b.Teardown(t.Context(), volume.Remains{UID: uid, Name: "pv", Dir: b.pvDir(uid)}); err != nil {
		t.Fatal(err)
	}
	b.Forget(uid)
}

func (b *bench) staging() string {
	return filepath.Join(b.root, "plugins", "kubernetes.io", "csi", driverOf, sum(handleOf))
}

// nothing waits until nothing is left of any volume.
func (b *bench) nothing(t *testing.T) {
	t.Helper()
	var left []string
	for range 3000 {
		left = b.mounts.Mounts()
		for _, dir := range []string{b.staging(), b.pvDir("uid-1"), b.pvDir("uid-2"), b.link("uid-1"), b.link("uid-2"), b.devices("pv"), b.devices("staging/pv"), b.devices("publish/pv")} {
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				left = append(left, dir)
			}
		}
		for name := range b.inUse.told.Snapshot() {
			left = append(left, "in use "+string(name))
		}
		b.Volumes.mu.Lock()
		for id := range b.volumes {
			left = append(left, "state of "+id.handle)
		}
		for id := range b.settling {
			left = append(left, "settling "+id.handle)
		}
		b.Volumes.mu.Unlock()
		if len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left are %v", left)
}

func (b *bench) called(t *testing.T, want ...string) {
	t.Helper()
	if got := b.driver.Calls(); !slices.Equal(got, want) {
		t.Errorf("the driver was asked for %v, want %v", got, want)
	}
}

func TestAVolumeIsStagedForItsFirstPodAndUnstagedAfterItsLast(t *testing.T) {
	b := newStaging(t, nil)
	b.cluster.secrets = map[string]map[string][]byte{"vault/s": {"key": []byte("value")}}
	first := b.claimOf("uid-1")
	first.PV.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "vault", Name: "s"}
	if _, err := b.Setup(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := b.setUp(t, "uid-2"); err != nil {
		t.Fatal(err)
	}
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume")
	// As a kubelet 1.36 writes them.
	for path, want := range map[string]string{
		b.staging():      `{"driverName":"csi.example.com","volumeHandle":"h/1"}` + "\n",
		b.pvDir("uid-1"): `{"specVolID":"pv","volumeHandle":"h/1","driverName":"csi.example.com","nodeName":"n1","attachmentID":"csi-` + sum(handleOf+driverOf+"n1") + `","volumeLifecycleMode":"Persistent"}` + "\n",
	} {
		if raw, err := os.ReadFile(filepath.Join(path, "vol_data.json")); err != nil || string(raw) != want {
			t.Errorf("beside the volume lies %q %v, want %q", raw, err, want)
		}
	}
	r := b.driver.Staged()[0]
	how := r.GetVolumeCapability()
	if r.GetVolumeId() != handleOf || r.GetStagingTargetPath() != filepath.Join(b.staging(), "globalmount") || r.GetSecrets()["key"] != "value" ||
		r.GetVolumeContext()["size"] != "1" || how.GetMount().GetFsType() != "ext4" || !slices.Equal(how.GetMount().GetMountFlags(), []string{"noatime"}) {
		t.Errorf("staged as %v", r)
	}
	if p := b.driver.Published()[1]; p.GetStagingTargetPath() != r.GetStagingTargetPath() || len(p.GetSecrets()) != 0 || p.GetVolumeCapability().String() != how.String() {
		t.Errorf("published as %v", p)
	}
	b.end(t, "uid-1")
	time.Sleep(50 * time.Millisecond)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume")
	b.end(t, "uid-2")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
}

func TestADriverThatDoesNotStageIsNotAskedTo(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = nil })
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if got := b.driver.Published()[0].GetStagingTargetPath(); got != "" {
		t.Errorf("published from %q", got)
	}
	b.end(t, "uid-1")
	b.nothing(t)
	b.called(t, "NodePublishVolume", "NodeUnpublishVolume")
}

func TestWhatADriverSaysOfStagingIsSaidAndFinalErrorsLeaveNothing(t *testing.T) {
	b := newStaging(t, nil)
	b.fault("NodeStageVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
	err := b.setUp(t, "uid-1")
	if said := (&podstate.VolumeError{Volume: "v", Err: err}).Error(); said != `MountVolume.MountDevice failed for volume "v" : rpc error: code = Internal desc = broken` {
		t.Errorf("the error is %s", said)
	}
	for _, dir := range []string{b.staging(), b.pvDir("uid-1")} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", dir)
		}
	}
	b.Forget("uid-1")
	b.nothing(t)
	b.called(t, "NodeStageVolume")
}

func TestAfterAnUncertainErrorAVolumeIsUnstaged(t *testing.T) {
	for name, errs := range map[string][]struct {
		at   string
		code codes.Code
	}{
		"it is staged":                             {{"NodeStageVolume done", codes.DeadlineExceeded}},
		"it may be staged yet":                     {{"NodeStageVolume", codes.DeadlineExceeded}},
		"it may be staged, and cannot be again":    {{"NodeStageVolume", codes.DeadlineExceeded}, {"NodeStageVolume", codes.Internal}},
		"it is staged, of which the driver is not": {{"NodeStageVolume done", codes.Internal}},
		"it is published":                          {{"NodePublishVolume done", codes.DeadlineExceeded}},
		"it cannot be published":                   {{"NodePublishVolume", codes.Internal}}, // and what is staged stays
	} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			for _, e := range errs {
				b.fault(e.at, func(context.Context) error { return status.Error(e.code, "who knows") })
				if err := b.setUp(t, "uid-1"); err == nil {
					t.Fatal("it is set up")
				}
			}
			b.Volumes = b.restarted(t)
			b.register(t)
			<-b.inUse.known
			b.end(t, "uid-1")
			b.settleSoon(volumeID{driverOf, handleOf})
			b.nothing(t)
			if got := b.driver.Calls(); got[len(got)-1] != "NodeUnstageVolume" {
				t.Errorf("the driver was asked for %v", got)
			}
		})
	}
}

// TestAVolumeThatFailedIsItsPodsOverARestart: it is not unstaged before the pod has had a try.
func TestAVolumeThatFailedIsItsPodsOverARestart(t *testing.T) {
	for at, code := range map[string]codes.Code{"NodeStageVolume": codes.DeadlineExceeded, "NodePublishVolume": codes.Internal} {
		t.Run(at, func(t *testing.T) {
			b := newStaging(t, nil)
			b.fault(at, func(context.Context) error { return status.Error(code, "not now") })
			if err := b.setUp(t, "uid-1"); err == nil {
				t.Fatal("it is set up")
			}
			b.fault(at, nil)
			b.Volumes = b.restarted(t)
			b.register(t)
			<-b.inUse.known
			b.settleSoon(volumeID{driverOf, handleOf})
			b.settled(t)
			if err := b.setUp(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			if got := b.driver.Calls(); slices.Contains(got, "NodeUnstageVolume") {
				t.Errorf("the driver was asked for %v", got)
			}
			b.end(t, "uid-1")
			b.nothing(t)
		})
	}
}

// What a SIGKILL leaves at any step is unstaged if no pod has it, and set up if one wants it.
func TestWhateverACrashLeavesOfAStagedVolumeIsUnstagedOrSetUp(t *testing.T) {
	data := persistent("pv", handleOf, driverOf, "n1")
	stagedData := stagedData{DriverName: driverOf, VolumeHandle: handleOf}
	steps := []func(b *bench) error{
		func(b *bench) error { return os.MkdirAll(b.pvDir("uid-1"), 0o750) },
		func(b *bench) error { return data.write(b.pvDir("uid-1")) },
		func(b *bench) error { return os.MkdirAll(filepath.Join(b.staging(), "globalmount"), 0o750) },
		func(b *bench) error { return writeData(b.staging(), stagedData) },
		func(b *bench) error { return b.mounts.Bind("x", filepath.Join(b.staging(), "globalmount")) },
		func(b *bench) error { return os.Mkdir(filepath.Join(b.pvDir("uid-1"), "mount"), 0o750) },
		func(b *bench) error { return b.mounts.Bind("x", filepath.Join(b.pvDir("uid-1"), "mount")) },
	}
	for n := range len(steps) + 1 {
		for _, wanted := range []bool{false, true} {
			b := newStaging(t, nil)
			for _, step := range steps[:n] {
				if err := step(b); err != nil {
					t.Fatal(err)
				}
			}
			b.Volumes = b.restarted(t)
			b.register(t)
			if wanted {
				if err := b.setUp(t, "uid-1"); err != nil {
					t.Fatalf("after %d steps: %v", n, err)
				}
				if mounts := b.mounts.Mounts(); len(mounts) != 2 {
					t.Errorf("after %d steps: mounted are %v", n, mounts)
				}
			}
			b.end(t, "uid-1")
			b.nothing(t)
			if t.Failed() {
				t.Fatalf("after %d steps, wanted %v", n, wanted)
			}
		}
	}
}

// An orphan is what a SIGKILL between a pod's end and its volume's leaves.
func TestAnOrphanIsUnstagedOnceItsDriverIsThere(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.fault("NodeUnstageVolume", func(context.Context) error { return status.Error(codes.Internal, "not now") })
	b.end(t, "uid-1")
	b.Volumes = b.restarted(t)
	<-b.inUse.known
	if _, told := b.inUse.told.Get("kubernetes.io/csi/csi.example.com^h/1"); !told {
		t.Error("it may be detached though it is staged")
	}
	b.fault("NodeUnstageVolume", nil)
	b.register(t)
	b.nothing(t)
}

func TestAVolumeThatIsWantedStaysStaged(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Attach(t.Context(), b.claimOf("uid-2")); err != nil {
		t.Fatal(err)
	}
	b.end(t, "uid-1")
	time.Sleep(50 * time.Millisecond)
	if _, err := b.Setup(t.Context(), b.claimOf("uid-2")); err != nil {
		t.Fatal(err)
	}
	if n := len(b.driver.Staged()); n != 1 {
		t.Errorf("staged %d times", n)
	}
	b.end(t, "uid-2")
	b.nothing(t)
}

func TestAVolumeOfWhichNobodyKnowsWhoHasItIsNotUnstaged(t *testing.T) {
	b := newStaging(t, nil)
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		if err := b.setUp(t, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.pvDir("uid-2"), "vol_data.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.end(t, "uid-1")
	b.inUse.forget("uid-2")
	b.settleSoon(volumeID{driverOf, handleOf})
	time.Sleep(50 * time.Millisecond)
	if slices.Contains(b.driver.Calls(), "NodeUnstageVolume") {
		t.Error("unstaged under a pod")
	}
	b.end(t, "uid-2")
	b.nothing(t)
}

func TestOperationsWithOneVolumeAreSerialAndAnotherIsNotHeldUp(t *testing.T) {
	b := newStaging(t, nil)
	begun, on := make(chan struct{}), make(chan struct{})
	b.fault("NodeStageVolume", func(context.Context) error {
		b.fault("NodeStageVolume", nil)
		close(begun)
		<-on
		return nil
	})
	done := make(chan error, 2)
	go func() { done <- b.setUp(t, "uid-1") }()
	<-begun
	go func() { done <- b.setUp(t, "uid-2") }()
	other := b.claimOf("uid-3")
	other.PV.Spec.CSI.VolumeHandle, other.PV.Name = "another", "pv-2"
	if _, err := b.Setup(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	close(on)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err) // the driver answers ABORTED to two at once
		}
	}
	if n := len(b.driver.Staged()); n != 2 {
		t.Errorf("staged %d times", n)
	}
	b.end(t, "uid-1")
	b.end(t, "uid-2")
	if err := b.Teardown(t.Context(), volume.Remains{UID: "uid-3", Name: "pv-2", Dir: other.Dir}); err != nil {
		t.Fatal(err)
	}
	b.Forget("uid-3")
	b.nothing(t)
}

func TestADriverIsToldOfAPersistentVolumesPod(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = append(c.Can, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) })
	yes, group := true, int64(77)
	b.cluster.driver.Spec.PodInfoOnMount = &yes
	r := b.claimOf("uid-1")
	r.ReadOnly, r.PV.Spec.CSI.NodePublishSecretRef = true, &v1.SecretReference{Namespace: "vault", Name: "none"}
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	if _, err := b.Setup(t.Context(), r); err == nil || !strings.Contains(err.Error(), "fetching NodePublishSecretRef vault/none failed") {
		t.Fatal(err)
	}
	r.PV.Spec.CSI.NodePublishSecretRef = nil
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	p := b.driver.Published()[0]
	if p.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] != "false" || !p.GetReadonly() || p.GetVolumeCapability().GetMount().GetVolumeMountGroup() != "77" {
		t.Errorf("published as %v", p)
	}
	if got := b.driver.Staged()[0].GetVolumeCapability().GetMount().GetVolumeMountGroup(); got != "77" {
		t.Errorf("staged for the group %q", got)
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

// TestUnstagingIsCountedAsTheKubeletCallsIt.
func TestUnstagingIsCountedAsTheKubeletCallsIt(t *testing.T) {
	for operation, have := range map[string]func(b *bench) error{
		"unmount_device": func(b *bench) error { return b.setUp(t, "uid-1") },
		"unmap_device":   func(b *bench) error { return b.mapDeviceOf(t, "uid-1") },
	} {
		b := newStaging(t, nil)
		reg := prometheus.NewRegistry()
		b.deps.Metrics = metrics.New(reg)
		if err := have(b); err != nil {
			t.Fatal(err)
		}
		if operation == "unmap_device" {
			b.unmap(t, "uid-1")
		} else {
			b.end(t, "uid-1")
		}
		b.nothing(t)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counted := false
		for _, f := range families {
			counted = counted || f.GetName() == "storage_operation_duration_seconds" && strings.Contains(f.String(), `value:"`+operation+`"`)
		}
		if !counted {
			t.Errorf("%s is not counted", operation)
		}
	}
}

// TestWhatLiesWhereNothingWasStagedGoesWithoutAsking: a kubelet writes what is to be known of a
// staged volume for a driver, too, that does not stage; and a crash may come before it is written.
func TestWhatLiesWhereNothingWasStagedGoesWithoutAsking(t *testing.T) {
	for name, known := range map[string]bool{"a driver that does not stage": true, "a crash": false} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, func(c *fakecsi.Config) { c.Can = nil })
			<-b.inUse.known
			err := os.MkdirAll(filepath.Join(b.staging(), globalMount), 0o750)
			if known {
				err = errors.Join(err, writeData(b.staging(), stagedData{DriverName: driverOf, VolumeHandle: handleOf}))
			}
			if err != nil {
				t.Fatal(err)
			}
			if !known { // then nobody needs the driver
				b.Deregister(b.plugin)
			}
			b.settleSoon(volumeID{driverOf, handleOf})
			b.nothing(t)
			b.called(t)
		})
	}
}
