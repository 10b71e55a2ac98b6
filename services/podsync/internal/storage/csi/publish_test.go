package csi

import (
	"context"
	"os"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// A PersistentVolume that was made anew under its name, and a volume in a pod's spec that
// is called like the PersistentVolume of one of its claims, have the same directory.
func TestAPlaceThatIsOneVolumesIsNoOthers(t *testing.T) {
	b := newStaging(t, nil)
	b.cluster.driver.Spec.VolumeLifecycleModes = append(b.cluster.driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	before, _ := readVolumeData(b.pvDir("uid-1"))
	anew := b.claimOf("uid-1")
	anew.PV.Spec.CSI.VolumeHandle = "another"
	inSpec := b.request()
	inSpec.Volume.Name, inSpec.Dir = "pv", b.pvDir("uid-1")
	for name, r := range map[string]func() error{
		"a volume made anew": func() error { _, err := b.Setup(t.Context(), anew); return err },
		"one in the spec":    func() error { _, err := b.Setup(t.Context(), inSpec); return err },
	} {
		if err := r(); podstate.VolumeCauseOf(err) != podstate.VolumeAsSaid || !strings.Contains(err.Error(), `of the volume "h/1" of driver csi.example.com`) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := readVolumeData(b.pvDir("uid-1")); err != nil || now != before {
			t.Errorf("%s: it is %+v now, %v", name, now, err)
		}
	}
	b.Forget("uid-1")
	b.called(t, "NodeStageVolume", "NodePublishVolume")
	b.end(t, "uid-1")
	b.nothing(t)
}

// TestWhatMayBePublishedIsTakenBackThoughItCannotBeStagedAgain: after a restart it is staged and
// published anew, whatever came of it before.
func TestWhatMayBePublishedIsTakenBackThoughItCannotBeStagedAgain(t *testing.T) {
	b := newStaging(t, nil)
	b.fault("NodePublishVolume", func(context.Context) error { return status.Error(codes.DeadlineExceeded, "it goes on") })
	if err := b.setUp(t, "uid-1"); err == nil {
		t.Fatal("it is set up")
	}
	b.Volumes = b.restarted(t)
	b.register(t)
	b.fault("NodeStageVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
	if err := b.setUp(t, "uid-1"); err == nil {
		t.Fatal("it is set up")
	}
	b.end(t, "uid-1")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodeStageVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
}

// TestAVolumeThatIsMountedNoMoreIsPublishedAnew, as when somebody has unmounted it by hand.
func TestAVolumeThatIsMountedNoMoreIsPublishedAnew(t *testing.T) {
	b := newBench(t, nil).register(t)
	for range 2 {
		made, err := b.Setup(t.Context(), b.request())
		if err != nil {
			t.Fatal(err)
		}
		if mounted, err := b.mounts.Mounted(made.Path); err != nil || !mounted {
			t.Fatalf("it is mounted: %v, %v", mounted, err)
		}
		if err := b.mounts.Unmount(made.Path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatLiesBesideAVolumeIsWhatItWasPublishedByLast: another agent, or the node under another
// name, may have written it.
func TestWhatLiesBesideAVolumeIsWhatItWasPublishedByLast(t *testing.T) {
	b := newStaging(t, nil)
	if err := persistent("pv", handleOf, driverOf, "earlier").write(b.pvDir("uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if data, err := readVolumeData(b.pvDir("uid-1")); err != nil || data != persistent("pv", handleOf, driverOf, "n1") {
		t.Errorf("it is %+v, %v", data, err)
	}
}

// TestWhoGivesTheFilesToTheGroupIsOne: a driver that can, by its capability, or podsync.
func TestWhoGivesTheFilesToTheGroupIsOne(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	group := int64(4242)
	for can, byDriver := range map[spec.NodeServiceCapability_RPC_Type]string{
		spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP: "4242", spec.NodeServiceCapability_RPC_UNKNOWN: "",
	} {
		b := newStaging(t, func(c *fakecsi.Config) { c.Can = append(c.Can, can) })
		b.cluster.driver.Spec.FSGroupPolicy = policy(storagev1.FileFSGroupPolicy)
		r := b.claimOf("uid-1")
		r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		made, err := b.Setup(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		staged, published := b.driver.Staged()[0].GetVolumeCapability().GetMount(), b.driver.Published()[0].GetVolumeCapability().GetMount()
		if staged.GetVolumeMountGroup() != byDriver || published.GetVolumeMountGroup() != byDriver {
			t.Errorf("%s: staged for the group %q, published for %q", can, staged.GetVolumeMountGroup(), published.GetVolumeMountGroup())
		}
		if byPodsync := groupOf(t, made.Path) == uint32(group); byPodsync != (byDriver == "") {
			t.Errorf("%s: podsync has given them away: %v", can, byPodsync)
		}
	}
}
