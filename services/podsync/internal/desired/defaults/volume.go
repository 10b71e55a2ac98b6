package defaults

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
)

func volume(vol *v1.Volume) {
	src := &vol.VolumeSource
	if reflect.ValueOf(*src).IsZero() {
		src.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if s := src.Secret; s != nil {
		setPointer(&s.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if s := src.ConfigMap; s != nil {
		setPointer(&s.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if s := src.DownwardAPI; s != nil {
		setPointer(&s.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		downwardItems(s.Items)
	}
	if s := src.Projected; s != nil {
		setPointer(&s.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for i := range s.Sources {
			if d := s.Sources[i].DownwardAPI; d != nil {
				downwardItems(d.Items)
			}
			if t := s.Sources[i].ServiceAccountToken; t != nil {
				setPointer(&t.ExpirationSeconds, 3600)
			}
		}
	}
	if s := src.HostPath; s != nil {
		setPointer(&s.Type, v1.HostPathUnset)
	}
	if s := src.Image; s != nil {
		setString(&s.PullPolicy, PullPolicy(s.Reference))
	}
	if s := src.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		setPointer(&s.VolumeClaimTemplate.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
	}
	networkVolume(src)
}

func networkVolume(src *v1.VolumeSource) {
	if s := src.ISCSI; s != nil {
		setString(&s.ISCSIInterface, "default")
	}
	if s := src.RBD; s != nil {
		setString(&s.RBDPool, "rbd")
		setString(&s.RadosUser, "admin")
		setString(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := src.AzureDisk; s != nil {
		setPointer(&s.CachingMode, v1.AzureDataDiskCachingReadWrite)
		setPointer(&s.Kind, v1.AzureSharedBlobDisk)
		setPointer(&s.FSType, "ext4")
		setPointer(&s.ReadOnly, false)
	}
	if s := src.ScaleIO; s != nil {
		setString(&s.StorageMode, "ThinProvisioned")
		setString(&s.FSType, "xfs")
	}
}

func downwardItems(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			setString(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}
