package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// pullVolumes asks for the images of all image volumes that have none yet. They
// are resolved once in the life of a pod, not at each start of a container.
// Source: KEP-4639, "re-resolved if the pod gets deleted and recreated".
func (p *planner) pullVolumes() {
	for i := range p.s.Pod.Spec.Volumes {
		v := &p.s.Pod.Spec.Volumes[i]
		if v.Image == nil || p.volumeImageReady(v.Name, v.Image) {
			continue
		}
		p.emit(podstate.Action{Key: podstate.Key{Kind: podstate.PullImage, Object: podstate.VolumeKey(v.Name)}, Volume: v.Name, Image: v.Image.Reference})
	}
}

func (p *planner) volumeImageReady(name string, source *v1.ImageVolumeSource) bool {
	img := p.s.Images[podstate.VolumeKey(name)]
	return img.Ref != "" && img.Spec == source.Reference
}

// imageVolume is the image volume of the pod with that name; nil when there is none.
func (p *planner) imageVolume(name string) *v1.ImageVolumeSource {
	if v := p.volumes.Find(name); v != nil {
		return v.Image
	}
	return nil
}

// volumeImagesReady says whether the images of all image volumes that the
// container mounts are present.
func (p *planner) volumeImagesReady(c *v1.Container) bool {
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		if source := p.imageVolume(name); source != nil && !p.volumeImageReady(name, source) {
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
		if name := c.VolumeMounts[i].Name; p.imageVolume(name) != nil {
			if refs == nil {
				refs = map[string]string{}
			}
			refs[name] = p.s.Images[podstate.VolumeKey(name)].Ref
		}
	}
	return refs
}

// pullFailure is the failed pull that keeps a container from starting, with the
// image's name in the spec: of its own image or of an image volume that it
// mounts. False when none failed.
func (p *planner) pullFailure(c *v1.Container) (image string, f Failure, failed bool) {
	if f, failed = p.s.Failures[podstate.Key{Kind: podstate.PullImage, Object: c.Name}]; failed {
		return c.Image, f, true
	}
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		source := p.imageVolume(name)
		if source == nil {
			continue
		}
		if f, failed = p.s.Failures[podstate.Key{Kind: podstate.PullImage, Object: podstate.VolumeKey(name)}]; failed {
			return source.Reference, f, true
		}
	}
	return "", Failure{}, false
}
