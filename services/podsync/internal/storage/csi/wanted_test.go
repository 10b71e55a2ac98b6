package csi

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestTheFirstAccessModeIsWhatADriverIsAskedFor(t *testing.T) {
	precise := abilities{spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true}
	for _, c := range []struct {
		modes []v1.PersistentVolumeAccessMode
		can   abilities
		want  string
	}{
		{nil, nil, "SINGLE_NODE_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany}, nil, "SINGLE_NODE_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, nil, "SINGLE_NODE_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, precise, "SINGLE_NODE_MULTI_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, precise, "SINGLE_NODE_SINGLE_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, precise, "MULTI_NODE_MULTI_WRITER"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}, nil, "MULTI_NODE_READER_ONLY"},
	} {
		w := wanted{modes: c.modes}
		if got := w.capability(c.can, nil).GetAccessMode().GetMode().String(); got != c.want {
			t.Errorf("%v with %v: %s, want %s", c.modes, c.can, got, c.want)
		}
	}
}

func TestAPersistentVolumeIsGivenToAGroupIfOneNodeOnlyWritesIt(t *testing.T) {
	for name, c := range map[string]struct {
		w      wanted
		policy *storagev1.FSGroupPolicy
		want   bool
	}{
		"one node's":                 {wanted{fsType: "ext4", modes: []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteOnce}}, nil, true},
		"one pod's":                  {wanted{fsType: "ext4", modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}}, nil, true},
		"many nodes'":                {wanted{fsType: "ext4", modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}}, nil, false},
		"many nodes', as the driver": {wanted{modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}}, policy(storagev1.FileFSGroupPolicy), true},
		"of no file system":          {wanted{modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}, nil, false},
		"read-only":                  {wanted{readOnly: true, fsType: "ext4", modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}, nil, false},
	} {
		if got := c.w.givesAway(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: c.policy}}); got != c.want {
			t.Errorf("%s: given away: %v", name, got)
		}
	}
}
