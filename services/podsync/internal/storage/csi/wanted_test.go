package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/polylet/polylet/internal/rpcerr"
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

// TestAHandleWithoutEndIsRefused: what lies beside the volume would count as damaged, and nobody
// would know any more whose other volumes are; and the Node object has to name it.
func TestAHandleWithoutEndIsRefused(t *testing.T) {
	for _, block := range []bool{false, true} {
		b := newStaging(t, nil)
		r := b.claimOf("uid-1")
		r.PV.Spec.CSI.VolumeHandle = strings.Repeat("\x01", mostOfAHandle+1)
		if mode := v1.PersistentVolumeBlock; block {
			r.PV.Spec.VolumeMode, r.Dir = &mode, b.link("uid-1")
		}
		if err := b.Attach(t.Context(), r); !errors.Is(err, rpcerr.ErrInvalid) {
			t.Errorf("to be attached: %v", err)
		}
		if _, err := b.Setup(t.Context(), r); !errors.Is(err, rpcerr.ErrInvalid) {
			t.Errorf("to be set up: %v", err)
		}
		if _, err := os.Lstat(r.Dir); !os.IsNotExist(err) {
			t.Errorf("something was made: %v", err)
		}
		b.Forget("uid-1")
		b.nothing(t)
		b.called(t)
		longest := strings.Repeat("\x01", mostOfAHandle)
		if err := persistent("pv", longest, driverOf, "n1").write(r.Dir); err != nil {
			t.Fatal(err)
		}
		if read, err := readVolumeData(r.Dir); err != nil || read.VolumeHandle != longest {
			t.Errorf("the longest one cannot be read: %v", err)
		}
	}
}

// TestAPodKeepsAVolumeWithAHandleWithoutEnd, which a release before this one, or another agent,
// has set up: its containers may have to start again.
func TestAPodKeepsAVolumeWithAHandleWithoutEnd(t *testing.T) {
	b := newStaging(t, nil)
	r := b.claimOf("uid-1")
	r.PV.Spec.CSI.VolumeHandle = strings.Repeat("h", mostOfAHandle+1)
	at := filepath.Join(r.Dir, mountName)
	if err := errors.Join(persistent("pv", r.PV.Spec.CSI.VolumeHandle, driverOf, "n1").write(r.Dir), os.Mkdir(at, 0o750), b.mounts.Bind("staged", at)); err != nil {
		t.Fatal(err)
	}
	if err := b.Attach(t.Context(), r); err != nil {
		t.Errorf("to be attached: %v", err)
	}
	if made, err := b.Setup(t.Context(), r); err != nil || made.Path != at {
		t.Errorf("to be set up: %q, %v", made.Path, err)
	}
}
