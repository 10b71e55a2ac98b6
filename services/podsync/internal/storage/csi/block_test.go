package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

func (b *bench) devices(at string) string {
	return filepath.Join(b.root, "plugins", "kubernetes.io", "csi", "volumeDevices", at)
}

func (b *bench) link(uid types.UID) string {
	return filepath.Join(b.root, "pods", string(uid), "volumeDevices", "kubernetes.io~csi", "pv")
}

// deviceOf is a volume of a claim that a pod wants as a device.
func (b *bench) deviceOf(uid types.UID) volume.Request {
	r := b.claimOf(uid)
	block := v1.PersistentVolumeBlock
	r.Dir, r.PV.Spec.VolumeMode = b.link(uid), &block
	return r
}

func (b *bench) mapDeviceOf(t *testing.T, uid types.UID) error {
	t.Helper()
	if err := b.Attach(t.Context(), b.deviceOf(uid)); err != nil {
		return err
	}
	made, err := b.Setup(t.Context(), b.deviceOf(uid))
	if err == nil && made.Path != b.link(uid) {
		t.Errorf("it lies at %q", made.Path)
	}
	return err
}

func (b *bench) deviceRemains(uid types.UID) volume.Remains {
	return volume.Remains{UID: uid, Name: "pv", Dir: b.link(uid)}
}

func (b *bench) unmap(t *testing.T, uid types.UID) {
	t.Helper()
	if isLink(b.link(uid)) {
		if err := b.Unmap(t.Context(), b.deviceRemains(uid)); err != nil {
			t.Fatal(err)
		}
	}
	b.Forget(uid)
}

func TestWhatADriverIsNotGivenOfADeviceIsSaidOfItsMapping(t *testing.T) {
	b := newStaging(t, nil)
	r := b.deviceOf("uid-1")
	r.PV.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "vault", Name: "none"}
	_, err := b.Setup(t.Context(), r)
	const want = `MapVolume.SetUpDevice failed for volume "pv" : fetching NodePublishSecretRef vault/none failed`
	failed := podstate.VolumeErrors{{Volume: "v", PV: "pv", Err: err}}
	if err == nil || !strings.HasPrefix(failed.Error(), want) || failed.EventReason() != "FailedMapVolume" {
		t.Errorf("%s: %v", failed.EventReason(), failed)
	}
}

func TestADeviceLiesWhereAKubeletHasItAndIsStagedOnce(t *testing.T) {
	b := newStaging(t, nil)
	for _, uid := range []types.UID{"uid-1", "uid-2", "uid-1"} {
		if err := b.mapDeviceOf(t, uid); err != nil {
			t.Fatal(err)
		}
	}
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume")
	data := `{"attachmentID":"csi-` + sum(handleOf+driverOf+"n1") + `","driverName":"csi.example.com","nodeName":"n1","specVolID":"pv","volumeHandle":"h/1"}` + "\n"
	if raw, err := os.ReadFile(b.devices("pv/data/vol_data.json")); err != nil || string(raw) != data {
		t.Errorf("known of it is %q, %v", raw, err)
	}
	if to, err := os.Readlink(b.link("uid-1")); err != nil || to != b.devices("publish/pv/uid-1") {
		t.Errorf("the pod's link leads to %q, %v", to, err)
	}
	if got, want := b.mounts.Mounts(), []string{b.devices("pv/dev/uid-1"), b.devices("pv/dev/uid-2")}; !slices.Equal(got, want) {
		t.Errorf("mounted are %v, want %v", got, want)
	}
	s, p := b.driver.Staged()[0], b.driver.Published()[0]
	if s.GetStagingTargetPath() != b.devices("staging/pv") || p.GetStagingTargetPath() != b.devices("staging/pv") || p.GetTargetPath() != b.devices("publish/pv/uid-1") ||
		s.GetVolumeCapability().GetBlock() == nil || p.GetVolumeCapability().GetBlock() == nil {
		t.Errorf("staged as %v, published as %v", s, p)
	}
	b.unmap(t, "uid-1")
	time.Sleep(50 * time.Millisecond)
	if slices.Contains(b.driver.Calls(), "NodeUnstageVolume") {
		t.Error("unstaged under a pod")
	}
	b.unmap(t, "uid-2")
	b.nothing(t)
	if calls := b.driver.Calls(); calls[len(calls)-1] != "NodeUnstageVolume" {
		t.Errorf("the driver was asked for %v", calls)
	}
}

func TestTheDriverOfADeviceIsNamedByItsLinkAsLongAsItIsKnown(t *testing.T) {
	b := newStaging(t, nil)
	if got := b.DriverOf(b.link("a")); got != "" {
		t.Errorf("before there is one it is %q", got)
	}
	if err := b.mapDeviceOf(t, "a"); err != nil {
		t.Fatal(err)
	}
	if got := b.DriverOf(b.link("a")); got != driverOf {
		t.Errorf("it is %q", got)
	}
	b.unmap(t, "a")
}

func TestADeviceOfADriverThatDoesNotStageIsPublishedAlone(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = nil })
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
	b.called(t, "NodePublishVolume", "NodeUnpublishVolume")
}

func TestWhatADriverSaysOfADeviceIsSaidAndNothingIsLeft(t *testing.T) {
	for at, want := range map[string]string{
		"NodeStageVolume":        `MapVolume.SetUpDevice failed for volume "v" : rpc error: code = Internal desc = broken`,
		"NodePublishVolume":      `MapVolume.MapPodDevice failed for volume "v" : rpc error: code = Internal desc = broken`,
		"NodePublishVolume done": `MapVolume.MapPodDevice failed for volume "v" : rpc error: code = Internal desc = broken`,
	} {
		b := newStaging(t, nil)
		b.fault(at, func(context.Context) error { return status.Error(codes.Internal, "broken") })
		err := b.mapDeviceOf(t, "uid-1")
		if said := (&podstate.VolumeError{Volume: "v", Err: err}).Error(); said != want {
			t.Errorf("said is %s, want %s", said, want)
		}
		b.unmap(t, "uid-1")
		b.nothing(t)
	}
}

// What a SIGKILL leaves at any step of a device's set-up, or of its end.
func TestWhateverACrashLeavesOfADeviceIsUnstagedOrSetUp(t *testing.T) {
	data := blockData{"a", driverOf, "", "n1", "pv", handleOf}
	steps := []func(b *bench) error{
		func(b *bench) error { return os.MkdirAll(b.devices("pv/data"), 0o750) },
		func(b *bench) error { return writeData(b.devices("pv/data"), data) },
		func(b *bench) error {
			return errors.Join(os.MkdirAll(b.devices("publish/pv"), 0o750), os.MkdirAll(b.devices("pv/dev"), 0o750), os.MkdirAll(filepath.Dir(b.link("uid-1")), 0o750))
		},
		func(b *bench) error { return os.Symlink(b.devices("publish/pv/uid-1"), b.link("uid-1")) },
		func(b *bench) error { return os.MkdirAll(b.devices("staging/pv"), 0o750) },
		func(b *bench) error { return os.WriteFile(b.devices("publish/pv/uid-1"), nil, 0o600) },
		func(b *bench) error { return os.WriteFile(b.devices("pv/dev/uid-1"), nil, 0o600) },
		func(b *bench) error { return b.mounts.Bind("x", b.devices("pv/dev/uid-1")) },
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
				if err := b.mapDeviceOf(t, "uid-1"); err != nil {
					t.Fatalf("after %d steps: %v", n, err)
				}
			} else if n < 2 {
				continue // empty directories, which nobody knows of; the next use takes them
			}
			b.unmap(t, "uid-1")
			b.nothing(t)
			if t.Failed() {
				t.Fatalf("after %d steps, wanted %v", n, wanted)
			}
		}
	}
}

func TestADeviceThatARunHasPublishedStands(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.Volumes = b.restarted(t)
	made, err := b.Setup(t.Context(), b.deviceOf("uid-1"))
	if err == nil || made.Path != b.link("uid-1") {
		t.Errorf("without its driver: %q, %v", made.Path, err)
	}
	b.register(t)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
}

func TestADeviceOfWhichNothingIsKnownIsTakenFromItsPod(t *testing.T) {
	b := newStaging(t, nil)
	if err := errors.Join(os.MkdirAll(filepath.Dir(b.link("uid-1")), 0o750), os.Symlink("/nowhere", b.link("uid-1"))); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
	b.called(t)
}

func TestADeviceOfWhichOnlyDamageIsKnownLeavesNothingInItsPod(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	damage(t, b.devices("pv/data"))
	b.unmap(t, "uid-1")
	if _, err := os.Lstat(b.devices("publish/pv/uid-1")); !errors.Is(err, os.ErrNotExist) || isLink(b.link("uid-1")) || len(b.mounts.Mounts()) != 0 {
		t.Errorf("the pod's device: %v, mounts %v", err, b.mounts.Mounts())
	}
	if slices.Contains(b.driver.Calls(), "NodeUnpublishVolume") {
		t.Error("nobody knows what to ask for")
	}
}

// Two PersistentVolumes may name one volume.
func TestADeviceThatThisProcessHasStagedIsUnstagedThoughOnlyDamageIsKnownOfIt(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	damage(t, b.devices("pv/data"))
	fails := true
	b.fault("NodeUnstageVolume", func(context.Context) error {
		if fails {
			fails = false
			return status.Error(codes.Internal, "the array is busy")
		}
		return nil
	})
	b.unmap(t, "uid-1")
	b.settled(t)
	if err := b.mapDeviceOf(t, "uid-2"); err != nil {
		t.Fatal(err)
	}
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume", "NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume")
	b.unmap(t, "uid-2")
	b.nothing(t)
}

// settled waits until nothing more is to be unstaged.
func (b *bench) settled(t *testing.T) {
	t.Helper()
	for range 3000 {
		b.Volumes.mu.Lock()
		left := len(b.settling)
		b.Volumes.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("a volume is being settled still")
}

func TestAVolumeIsStagedForEachPlaceThatItIsUsedIn(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := b.setUp(t, "uid-2"); err != nil {
		t.Fatal(err)
	}
	staged := b.driver.Staged()
	if len(staged) != 2 || staged[0].GetStagingTargetPath() == staged[1].GetStagingTargetPath() {
		t.Errorf("staged %v", staged)
	}
	b.unmap(t, "uid-1")
	b.end(t, "uid-2")
	b.nothing(t)
}

func TestCallsForAVolumeOfBeforeCSIAreCountedAsSuch(t *testing.T) {
	b := newStaging(t, nil)
	reg := prometheus.NewRegistry()
	b.deps.Metrics = metrics.New(reg)
	r := b.claimOf("uid-1")
	r.Migrated = true
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(fmt.Sprint(families), " ", "")
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeGetCapabilities"} {
		if !strings.Contains(text, `value:"/csi.v1.Node/`+method+`"}label:{name:"migrated"value:"true"}`) {
			t.Errorf("%s: %s", method, text)
		}
	}
}

func TestWhatIsKnownOfADeviceIsKeptUntilItIsUnstaged(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	anew := b.deviceOf("uid-2")
	anew.PV.Spec.CSI.VolumeHandle = "another" // the PersistentVolume was made anew under its name
	if err := b.Attach(t.Context(), anew); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Setup(t.Context(), anew); err == nil || !strings.Contains(err.Error(), `of the volume "h/1" of driver csi.example.com`) {
		t.Error(err)
	}
	if data, err := readVolumeData(b.devices("pv/data")); err != nil || data.VolumeHandle != handleOf {
		t.Errorf("known of it is %+v, %v", data, err)
	}
	b.unmap(t, "uid-1")
	var err error
	for range 3000 {
		if _, err = b.Setup(t.Context(), anew); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-2")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume",
		"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
}
