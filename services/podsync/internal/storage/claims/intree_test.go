package claims

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAVolumeOfBeforeCSIIsItsDrivers(t *testing.T) {
	zone := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"z"}},
	}}}}}
	disk := v1.AzureManagedDisk
	for name, c := range map[string]struct {
		source         v1.PersistentVolumeSource
		driver, handle string
	}{
		"awsElasticBlockStore": {v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://z/vol-1", FSType: "ext4", Partition: 2}}, "ebs.csi.aws.com", "vol-1"},
		"gcePersistentDisk":    {v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/z/disks/pd"},
		"azureDisk":            {v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/x/d", Kind: &disk}}, "disk.csi.azure.com", "/subscriptions/x/d"},
		"azureFile":            {v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share"}}, "file.csi.azure.com", "#acc#share#pv#ns"},
		"cinder":               {v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "v"}}, "cinder.csi.openstack.org", "v"},
		"vsphereVolume":        {v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] x.vmdk"}}, "csi.vsphere.vmware.com", "[ds] x.vmdk"},
		"portworxVolume":       {v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "p"}}, "pxd.portworx.com", "p"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := volume()
			pv.Spec.PersistentVolumeSource, pv.Spec.NodeAffinity = c.source, zone
			pv.Labels = map[string]string{v1.LabelTopologyZone: "z"}
			got, err := Translate(pv)
			if err != nil {
				t.Fatal(err)
			}
			if got.Spec.CSI == nil || got.Spec.CSI.Driver != c.driver || got.Spec.CSI.VolumeHandle != c.handle || Kind(got) != "csi" {
				t.Errorf("it is %+v", got.Spec.PersistentVolumeSource)
			}
			if got.Name != "pv" || got.Spec.ClaimRef == nil || got.Spec.ClaimRef.UID != "claim-uid" || pv.Spec.CSI != nil || Kind(pv) != name {
				t.Errorf("%s of claim %+v; before it is %s", got.Name, got.Spec.ClaimRef, Kind(pv))
			}
		})
	}
}

func TestAVolumeOfAnyOtherKindIsAsItWas(t *testing.T) {
	pv := volume()
	if got, err := Translate(pv); got != pv || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if InTree(&v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}) {
		t.Error("an emptyDir is taken for one of before CSI")
	}
}

func TestAVolumeThatCannotBeTranslatedIsRefused(t *testing.T) {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/b/c/d"}
	if _, err := Translate(pv); err == nil || !strings.HasPrefix(err.Error(), "failed to translate in-tree pv to CSI: ") {
		t.Errorf("the error is %v", err)
	}
}

func TestAVolumeOfBeforeCSIInAPodsSpecIsAsIfAClaimWereBoundToIt(t *testing.T) {
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://z/vol-1"}}}
	if !InTree(v) {
		t.Fatal("it is not taken for one")
	}
	pv, called, err := Inline("ns", v)
	if err != nil || pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != "vol-1" || *pv.Spec.VolumeMode != v1.PersistentVolumeFilesystem {
		t.Fatalf("it is %+v, %v", pv, err)
	}
	if pv.Name != "ebs.csi.aws.com-vol-1" || called != pv.Name {
		t.Errorf("its name is %q, and it is called %q", pv.Name, called)
	}
	v.AWSElasticBlockStore.VolumeID = "aws://a/b/c/d"
	if _, _, err := Inline("ns", v); err == nil || !strings.HasPrefix(err.Error(), "failed to translate in-tree inline volume to CSI: ") {
		t.Errorf("the error is %v", err)
	}
}

func TestAVolumeOfBeforeCSIInAPodsSpecIsCalledAsKubernetesCallsItThoughItsDirectoryIsNot(t *testing.T) {
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] kubevols/x.vmdk"}}}
	pv, called, err := Inline("ns", v)
	if err != nil || pv.Name != "csi.vsphere.vmware.com-[ds] kubevols~x.vmdk" || called != "csi.vsphere.vmware.com-[ds] kubevols/x.vmdk" {
		t.Errorf("its name is %q, and it is called %q: %v", pv.Name, called, err)
	}
}

// csi-translation-lib looks for the policy of a volume in a pod's spec in a PersistentVolume.
func TestTheStoragePolicyOfAVolumeInAPodsSpecIsItsDriversAttribute(t *testing.T) {
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] x.vmdk", StoragePolicyName: "gold"}}}
	pv, _, err := Inline("ns", v)
	if err != nil || pv.Spec.CSI.VolumeAttributes["storagepolicyname"] != "gold" || v.VsphereVolume.StoragePolicyName != "gold" {
		t.Errorf("it is %+v of %+v, %v", pv, v.VsphereVolume, err)
	}
}
