package source

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const noAPI = "a static pod must not refer to objects of the apiserver; remove it or make the pod through the apiserver"

// references finds what of a pod refers to API objects, which a static pod must
// not do: it would depend on what it is often there to start, and could read
// what its author may not.
// Source: feature PreventStaticPodAPIReferences.
func references(pod *v1.Pod) field.ErrorList {
	errs := claims(pod)
	spec := field.NewPath("spec")
	forbid := func(path *field.Path) { errs = append(errs, field.Forbidden(path, noAPI)) }
	if pod.Spec.ServiceAccountName != "" {
		forbid(spec.Child("serviceAccountName"))
	}
	if len(pod.Spec.ImagePullSecrets) > 0 {
		forbid(spec.Child("imagePullSecrets"))
	}
	for i := range pod.Spec.Volumes {
		volumeReferences(&pod.Spec.Volumes[i].VolumeSource, spec.Child("volumes").Index(i), forbid)
	}
	eachContainer(pod, func(c *v1.Container, path *field.Path) {
		for i, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				forbid(path.Child("envFrom").Index(i).Child("configMapRef"))
			}
			if from.SecretRef != nil {
				forbid(path.Child("envFrom").Index(i).Child("secretRef"))
			}
		}
		for i, env := range c.Env {
			if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
				forbid(path.Child("env").Index(i).Child("valueFrom", "configMapKeyRef"))
			}
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				forbid(path.Child("env").Index(i).Child("valueFrom", "secretKeyRef"))
			}
		}
	})
	return errs
}

// claims finds resource claims. No static pod may have them, whatever the gate
// says: its mirror would take a device that the scheduler gives to another pod
// (CVE-2025-4563).
func claims(pod *v1.Pod) field.ErrorList {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "resourceClaims"), noAPI)}
}

func volumeReferences(src *v1.VolumeSource, path *field.Path, forbid func(*field.Path)) {
	for name, found := range map[string]bool{
		"secret":                src.Secret != nil,
		"configMap":             src.ConfigMap != nil,
		"persistentVolumeClaim": src.PersistentVolumeClaim != nil,
		"ephemeral":             src.Ephemeral != nil,
		"csi":                   src.CSI != nil,
		"glusterfs":             src.Glusterfs != nil,
		"azureFile":             src.AzureFile != nil,
		"cephfs.secretRef":      src.CephFS != nil && src.CephFS.SecretRef != nil,
		"cinder.secretRef":      src.Cinder != nil && src.Cinder.SecretRef != nil,
		"flexVolume.secretRef":  src.FlexVolume != nil && src.FlexVolume.SecretRef != nil,
		"iscsi.secretRef":       src.ISCSI != nil && src.ISCSI.SecretRef != nil,
		"rbd.secretRef":         src.RBD != nil && src.RBD.SecretRef != nil,
		"scaleIO.secretRef":     src.ScaleIO != nil && src.ScaleIO.SecretRef != nil,
		"storageos.secretRef":   src.StorageOS != nil && src.StorageOS.SecretRef != nil,
	} {
		if found {
			forbid(path.Child(name))
		}
	}
	if src.Projected == nil {
		return
	}
	for i, s := range src.Projected.Sources {
		if s.Secret != nil || s.ConfigMap != nil || s.ServiceAccountToken != nil || s.ClusterTrustBundle != nil || s.PodCertificate != nil {
			forbid(path.Child("projected", "sources").Index(i))
		}
	}
}

// eachContainer visits all containers of all kinds with their field paths.
func eachContainer(pod *v1.Pod, visit func(c *v1.Container, path *field.Path)) {
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		visit(&pod.Spec.InitContainers[i], spec.Child("initContainers").Index(i))
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i], spec.Child("containers").Index(i))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		visit(&c, spec.Child("ephemeralContainers").Index(i))
	}
}
