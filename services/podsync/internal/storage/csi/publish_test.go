package csi

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
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
		if err := r(); err == nil || !strings.Contains(err.Error(), `of the volume "h/1" of driver csi.example.com`) {
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
