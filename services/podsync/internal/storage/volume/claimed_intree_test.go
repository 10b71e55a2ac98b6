package volume

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

func TestAVolumeOfBeforeCSIInAPodsSpecIsCalledInMessagesAsKubernetesCallsIt(t *testing.T) {
	f, d := withAttacher(t)
	d.set = errors.New("broken")
	pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] kubevols/x.vmdk"}}})
	const called = "csi.vsphere.vmware.com-[ds] kubevols/x.vmdk"
	fails(t, f.set.Setup(t.Context(), pod), `MountVolume.SetUp failed for volume "`+called+`" : broken`)
	d.set = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	list := f.set.Standings(pod, false)
	if one := list[0]; one.PV != called || one.Plugin != "kubernetes.io/csi" || !strings.HasSuffix(one.Path, "/kubernetes.io~csi/csi.vsphere.vmware.com-[ds] kubevols~x.vmdk/mount") {
		t.Errorf("it is shown as %+v", one)
	}
}

func TestAVolumeOfBeforeCSIIsResolvedToItsDrivers(t *testing.T) {
	f := newFixture(t)
	disk := &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}
	f.bind("c", "pv", v1.PersistentVolumeSource{AWSElasticBlockStore: disk})
	for name, v := range map[string]v1.Volume{
		"of a claim": claimVolume("v", "c"),
		"in a spec":  {Name: "v", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: disk}},
	} {
		pod := podWith(v)
		ref, is := claims.Of(pod, &v)
		if !is || !ofClaim(&v) || ref.ReadOnly != (name == "in a spec") {
			t.Errorf("%s: %+v, %v", name, ref, is)
		}
		r := Request{Pod: pod, Volume: &v}
		_, _ = f.set.resolve(t.Context(), &r, ref)
		if pv := r.PV; !r.Migrated || pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != "ebs.csi.aws.com" || pv.Spec.CSI.VolumeHandle != "vol-1" {
			t.Errorf("%s: %+v", name, r.PV)
		}
	}
	f.claims.volumes["pv"].Spec.AWSElasticBlockStore.VolumeID = "aws://a/b/c/d"
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err == nil {
		t.Error("one that cannot be translated was set up")
	}
}
