package podutil

import (
	v1 "k8s.io/api/core/v1"
)

// Volume is the volume of a pod with that name; nil when there is none.
func Volume(pod *v1.Pod, name string) *v1.Volume {
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// ImageVolume is the image volume of a pod with that name; nil when there is none.
func ImageVolume(pod *v1.Pod, name string) *v1.ImageVolumeSource {
	if v := Volume(pod, name); v != nil {
		return v.Image
	}
	return nil
}

// Images names the images that a pod's containers and image volumes ask for.
func Images(pod *v1.Pod) (names []string) {
	for _, c := range Containers(pod) {
		names = append(names, c.Image)
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			names = append(names, v.Reference)
		}
	}
	return names
}

// VolumesByName is Volume for all of a pod's.
func VolumesByName(pod *v1.Pod) Index[string, v1.Volume] {
	return NewIndex(pod.Spec.Volumes, func(v *v1.Volume) string { return v.Name })
}

// ReadOnly says whether a volume is said to be read-only itself, whoever mounts it.
func ReadOnly(v *v1.Volume) bool {
	switch {
	case v.CSI != nil:
		return v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ReadOnly
	case v.NFS != nil:
		return v.NFS.ReadOnly
	case v.ISCSI != nil:
		return v.ISCSI.ReadOnly
	case v.FC != nil:
		return v.FC.ReadOnly
	}
	return readOnlyInTree(v)
}

// readOnlyInTree is ReadOnly of a volume of before CSI.
func readOnlyInTree(v *v1.Volume) bool {
	switch {
	case v.AWSElasticBlockStore != nil:
		return v.AWSElasticBlockStore.ReadOnly
	case v.GCEPersistentDisk != nil:
		return v.GCEPersistentDisk.ReadOnly
	case v.AzureDisk != nil:
		return v.AzureDisk.ReadOnly != nil && *v.AzureDisk.ReadOnly
	case v.AzureFile != nil:
		return v.AzureFile.ReadOnly
	case v.Cinder != nil:
		return v.Cinder.ReadOnly
	case v.PortworxVolume != nil:
		return v.PortworxVolume.ReadOnly
	}
	return false
}
