package plan

import v1 "k8s.io/api/core/v1"

// volumePrefix keeps the keys of image volumes apart from those of containers,
// whose names have no slash.
const volumePrefix = "volume/"

// VolumeKey is the key of an image volume in State.Images, and the Object of
// the action that pulls its image.
func VolumeKey(volume string) string { return volumePrefix + volume }

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

// pullVolumes asks for the images of all image volumes that have none yet. They
// are resolved once in the life of a pod, not at each start of a container.
// Source: KEP-4639, "re-resolved if the pod gets deleted and recreated".
func (p *planner) pullVolumes() {
	for i := range p.s.Pod.Spec.Volumes {
		v := &p.s.Pod.Spec.Volumes[i]
		if v.Image == nil || p.volumeImageReady(v.Name, v.Image) {
			continue
		}
		p.emit(Action{Key: Key{PullImage, VolumeKey(v.Name)}, Volume: v.Name})
	}
}

func (p *planner) volumeImageReady(name string, source *v1.ImageVolumeSource) bool {
	img := p.s.Images[VolumeKey(name)]
	return img.Ref != "" && img.Spec == source.Reference
}

// volumeImagesReady says whether the images of all image volumes that the
// container mounts are present.
func (p *planner) volumeImagesReady(c *v1.Container) bool {
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		if source := ImageVolume(p.s.Pod, name); source != nil && !p.volumeImageReady(name, source) {
			return false
		}
	}
	return true
}

// volumeRefs are the references of the images of the image volumes that the
// container mounts, by volume; nil when it mounts none.
func (p *planner) volumeRefs(c *v1.Container) map[string]string {
	var refs map[string]string
	for i := range c.VolumeMounts {
		if name := c.VolumeMounts[i].Name; ImageVolume(p.s.Pod, name) != nil {
			if refs == nil {
				refs = map[string]string{}
			}
			refs[name] = p.s.Images[VolumeKey(name)].Ref
		}
	}
	return refs
}

// pullFailure is the failed pull that keeps a container from starting, with the
// image's name in the spec: of its own image or of an image volume that it
// mounts. False when none failed.
func (p *planner) pullFailure(c *v1.Container) (image string, f Failure, failed bool) {
	if f, failed = p.s.Failures[Key{PullImage, c.Name}]; failed {
		return c.Image, f, true
	}
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		source := ImageVolume(p.s.Pod, name)
		if source == nil {
			continue
		}
		if f, failed = p.s.Failures[Key{PullImage, VolumeKey(name)}]; failed {
			return source.Reference, f, true
		}
	}
	return "", Failure{}, false
}
