package peer

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAnAccessModeIsSaidAsPreciselyAsADriverTakesIt(t *testing.T) {
	for _, c := range []struct {
		mode          v1.PersistentVolumeAccessMode
		rough, finely string
	}{
		{v1.ReadWriteOnce, "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"},
		{v1.ReadWriteOncePod, "SINGLE_NODE_WRITER", "SINGLE_NODE_SINGLE_WRITER"},
		{v1.ReadWriteMany, "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"},
		{v1.ReadOnlyMany, "MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY"},
		{"Sometimes", "UNKNOWN", "UNKNOWN"},
	} {
		for precise, want := range map[bool]string{false: c.rough, true: c.finely} {
			if got := (Capability{Mode: c.mode, Precise: precise}).message().GetAccessMode().GetMode().String(); got != want {
				t.Errorf("%s, precise %v: %s, want %s", c.mode, precise, got, want)
			}
		}
	}
}

func TestADeviceIsAskedForWithoutWhatIsOfAFilesystem(t *testing.T) {
	group := int64(7)
	as := Capability{Mode: v1.ReadWriteOnce, FSType: "ext4", Options: []string{"noatime"}, Group: &group}
	if got := as.message().GetMount(); got.GetFsType() != "ext4" || got.GetVolumeMountGroup() != "7" || len(got.GetMountFlags()) != 1 {
		t.Errorf("a filesystem: %v", got)
	}
	as.Block = true
	if got := as.message(); got.GetBlock() == nil || got.GetMount() != nil {
		t.Errorf("a device: %v", got)
	}
}
