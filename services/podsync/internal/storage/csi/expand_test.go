package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
)

// grows has the driver grow volumes.
func grows(c *fakecsi.Config) {
	c.Can = append(c.Can, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
}

func kindOf(err error) growth.Kind {
	known := (*growth.Error)(nil)
	if !errors.As(err, &known) {
		return 0
	}
	return known.Kind
}

func TestADriverGrowsWhatAPodHas(t *testing.T) {
	b := newStaging(t, grows)
	b.cluster.secrets = map[string]map[string][]byte{"ns/s": {"key": []byte("value")}}
	r := b.claimOf("uid-1")
	r.PV.Spec.CSI.NodeExpandSecretRef = &v1.SecretReference{Namespace: "ns", Name: "s"}
	two := resource.MustParse("2Gi")
	if err := b.Expand(t.Context(), r, two); kindOf(err) != growth.Away || len(b.driver.Expanded()) != 0 {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.Expand(t.Context(), r, two); err != nil {
		t.Fatal(err)
	}
	got := b.driver.Expanded()[0]
	staged := b.driver.Staged()[0].GetStagingTargetPath()
	if got.GetVolumeId() != handleOf || got.GetVolumePath() != filepath.Join(b.pvDir("uid-1"), "mount") || got.GetStagingTargetPath() != staged ||
		got.GetCapacityRange().GetRequiredBytes() != 2<<30 || got.GetSecrets()["key"] != "value" || got.GetVolumeCapability().GetMount().GetFsType() != "ext4" ||
		got.GetVolumeCapability().GetMount().GetMountFlags()[0] != "noatime" || got.GetVolumeCapability().GetAccessMode().GetMode() != spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("the request is %v", got)
	}
	if err := b.mounts.Unmount(got.GetVolumePath()); err != nil {
		t.Fatal(err)
	}
	if err := b.Expand(t.Context(), r, two); err != nil || len(b.driver.Expanded()) != 2 {
		t.Errorf("of a driver that publishes without a mount: %v", err)
	}
	other := b.claimOf("uid-1")
	other.PV.Spec.CSI.VolumeHandle = "another"
	if err := b.Expand(t.Context(), other, two); kindOf(err) != growth.Away || len(b.driver.Expanded()) != 2 {
		t.Errorf("one in whose place another is: %v", err)
	}
	r.PV.Spec.CSI.NodeExpandSecretRef.Name = "none"
	if err := b.Expand(t.Context(), r, two); kindOf(err) != growth.Uncertain || !strings.Contains(err.Error(), "expander.NodeExpand failed to get NodeExpandSecretRef ns/none: ") {
		t.Errorf("without its secret: %v", err)
	}
}

func TestADriverGrowsADevice(t *testing.T) {
	b := newBench(t, grows) // and stages nothing
	no, block := false, v1.PersistentVolumeBlock
	b.cluster.driver.Spec.AttachRequired, b.cluster.driver.Spec.VolumeLifecycleModes = &no, nil
	b.register(t)
	r := b.claimOf("uid-1")
	r.PV.Spec.VolumeMode, r.Dir = &block, filepath.Join(b.root, "pods", "uid-1", "volumeDevices", "kubernetes.io~csi", "pv")
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.Expand(t.Context(), r, resource.MustParse("2Gi")); err != nil {
		t.Fatal(err)
	}
	at, err := os.Readlink(r.Dir)
	if got := b.driver.Expanded()[0]; err != nil || got.GetVolumePath() != at || got.GetStagingTargetPath() != "" || got.GetVolumeCapability().GetBlock() == nil {
		t.Errorf("the request is %v, %v", got, err)
	}
}

func TestWhyAVolumeDoesNotGrowIsToldApart(t *testing.T) {
	b := newStaging(t, grows)
	r := b.claimOf("uid-1")
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[codes.Code]struct {
		kind growth.Kind
		text string
	}{
		codes.FailedPrecondition: {growth.InUse, "Expander.NodeExpand failed to expand the volume : rpc error: code = FailedPrecondition desc = no"},
		codes.OutOfRange:         {growth.Infeasible, "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no"},
		codes.InvalidArgument:    {growth.Infeasible, "Expander.NodeExpand failed to expand the volume rpc error: code = InvalidArgument desc = no"},
		codes.Aborted:            {growth.Uncertain, "Expander.NodeExpand failed to expand the volume : rpc error: code = Aborted desc = no"},
		codes.Internal:           {0, "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = no"},
	} {
		b.fault("NodeExpandVolume", func(context.Context) error { return status.Error(code, "no") })
		if err := b.Expand(t.Context(), r, resource.MustParse("2Gi")); err == nil || kindOf(err) != want.kind || err.Error() != want.text {
			t.Errorf("%v: kind %d, %v", code, kindOf(err), err)
		}
	}
	b.Deregister(b.plugin)
	if err := b.Expand(t.Context(), r, resource.MustParse("2Gi")); kindOf(err) != growth.Away {
		t.Errorf("the driver is gone: %v", err)
	}
	old := newStaging(t, nil)
	if _, err := old.Setup(t.Context(), old.claimOf("uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := old.Expand(t.Context(), old.claimOf("uid-1"), resource.MustParse("2Gi")); kindOf(err) != growth.Unsupported || err.Error() != "NodeExpand is not supported by the CSI driver csi.example.com" {
		t.Errorf("a driver that cannot: %v", err)
	}
}

// TestAVolumeWhoseFilesystemDoesNotAnswerIsGrownWithoutAskingThat: a volume of a driver may be
// one of a server, or of a process (FUSE). podsync does not look at it itself.
func TestAVolumeWhoseFilesystemDoesNotAnswerIsGrownWithoutAskingThat(t *testing.T) {
	b := newStaging(t, grows)
	r := b.claimOf("uid-1")
	if _, err := b.Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(b.pvDir("uid-1"), "mount")
	silent, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	options := "rootmode=40000,user_id=0,group_id=0,fd=" + strconv.Itoa(int(silent.Fd()))
	if err := unix.Mount("silent", target, "fuse.silent", 0, options); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	b.fault("NodeExpandVolume", func(context.Context) error { return status.Error(codes.Unavailable, "it does not answer") })
	ended := make(chan error, 1)
	go func() { ended <- b.Expand(t.Context(), r, resource.MustParse("2Gi")) }()
	select {
	case err := <-ended:
		if kindOf(err) != growth.Uncertain || len(b.driver.Expanded()) != 1 {
			t.Errorf("%v; its driver was asked for %v", err, b.driver.Expanded())
		}
		silent.Close()
	case <-time.After(30 * time.Second):
		t.Error("whoever grows it waits in the kernel for its server, with the volume's turn")
		silent.Close() // ends what waits
		<-ended
	}
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}
