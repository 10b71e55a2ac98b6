package csi

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
)

func TestTheFirstAccessModeIsWhatADriverIsAskedFor(t *testing.T) {
	for want, modes := range map[v1.PersistentVolumeAccessMode][]v1.PersistentVolumeAccessMode{
		v1.ReadWriteOnce: nil, v1.ReadOnlyMany: {v1.ReadOnlyMany, v1.ReadWriteMany},
	} {
		w := wanted{modes: modes}
		if got := w.capability(peer.Abilities{SingleNodeMultiWriter: true}, nil); got.Mode != want || !got.Precise {
			t.Errorf("%v: %+v, want %s", modes, got, want)
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
