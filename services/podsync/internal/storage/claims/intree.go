package claims

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// vsphereStoragePolicy is the attribute in which vSphere's driver is told a storage policy.
const vsphereStoragePolicy = "storagepolicyname"

// Translate is a volume as its CSI driver has it, if it is of a kind that Kubernetes made
// itself before there were any (awsElasticBlockStore, azureDisk, azureFile, cinder,
// gcePersistentDisk, portworxVolume, vsphereVolume); any other is returned as it is. The
// volume is not changed.
// Source: KEP-625
func Translate(pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	t := csitranslation.New()
	if !t.IsPVMigratable(pv) {
		return pv, nil
	}
	translated, err := t.TranslateInTreePVToCSI(logr.Discard(), pv)
	if err != nil {
		return nil, podstate.VolumeSpec.Wrap(fmt.Errorf("failed to translate in-tree pv to CSI: %w", err))
	}
	return translated, nil
}

// InTree says whether a volume in a pod's spec is of such a kind; see Inline.
func InTree(v *v1.Volume) bool { return csitranslation.New().IsInlineMigratable(v) }

// Inline is what Translate makes of a volume in the spec of a pod of a namespace: one as
// if a claim were bound to it, whose name is that of a directory. called is what Kubernetes
// calls it elsewhere.
func Inline(namespace string, v *v1.Volume) (pv *v1.PersistentVolume, called string, err error) {
	policy := ""
	if v.VsphereVolume != nil && v.VsphereVolume.StoragePolicyName != "" {
		v = v.DeepCopy()
		policy, v.VsphereVolume.StoragePolicyName = v.VsphereVolume.StoragePolicyName, "" // the library looks for it where there is nothing, and panics
	}
	pv, err = csitranslation.New().TranslateInTreeInlineVolumeToCSI(logr.Discard(), v, namespace)
	if err != nil {
		return nil, "", podstate.VolumeSpec.Wrap(fmt.Errorf("failed to translate in-tree inline volume to CSI: %w", err))
	}
	if policy != "" {
		pv.Spec.CSI.VolumeAttributes[vsphereStoragePolicy] = policy
	}
	called, pv.Name = pv.Name, strings.ReplaceAll(pv.Name, "/", "~") // as Kubernetes spells directories
	return pv, called, nil
}
