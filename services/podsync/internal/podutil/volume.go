package podutil

import (
	v1 "k8s.io/api/core/v1"
)

// ImageVolume is the image volume of a pod with that name; nil when there is none.
func ImageVolume(pod *v1.Pod, name string) *v1.ImageVolumeSource {
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v.Image
		}
	}
	return nil
}
