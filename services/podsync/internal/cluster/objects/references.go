package objects

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// References are the objects that a pod's spec names: from its volumes, its
// containers' environment, its image pull secrets and its runtime class.
func References(pod *v1.Pod) map[Key]struct{} {
	refs := references{namespace: pod.Namespace, keys: map[Key]struct{}{}}
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		refs.keys[Key{Kind: RuntimeClass, Name: *name}] = struct{}{}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		refs.add(Secret, s.Name)
	}
	for i := range pod.Spec.Volumes {
		refs.volume(&pod.Spec.Volumes[i])
	}
	for _, c := range podutil.Containers(pod) {
		refs.environment(c.EnvFrom, c.Env)
	}
	return refs.keys
}

type references struct {
	namespace string
	keys      map[Key]struct{}
}

// references are those of a pod that are to be watched.
func (s *Store) references(pod *v1.Pod) map[Key]struct{} {
	keys := References(pod)
	if !s.cfg.TrustBundles {
		delete(keys, Key{Kind: ClusterTrustBundle})
	}
	return keys
}

func (r *references) add(kind Kind, name string) {
	if name != "" {
		r.keys[Key{Kind: kind, Namespace: r.namespace, Name: name}] = struct{}{}
	}
}

func (r *references) volume(v *v1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.add(ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		r.add(Secret, v.Secret.SecretName)
	case v.CSI != nil:
		if v.CSI.Driver != "" {
			r.keys[Key{Kind: CSIDriver, Name: v.CSI.Driver}] = struct{}{}
		}
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			r.add(Secret, ref.Name)
		}
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				r.add(ConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.add(Secret, s.Secret.Name)
			}
			if s.ClusterTrustBundle != nil {
				r.keys[Key{Kind: ClusterTrustBundle}] = struct{}{}
			}
		}
	}
}

func (r *references) environment(from []v1.EnvFromSource, env []v1.EnvVar) {
	for _, f := range from {
		if f.ConfigMapRef != nil {
			r.add(ConfigMap, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			r.add(Secret, f.SecretRef.Name)
		}
	}
	for _, e := range env {
		switch {
		case e.ValueFrom == nil:
		case e.ValueFrom.ConfigMapKeyRef != nil:
			r.add(ConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
		case e.ValueFrom.SecretKeyRef != nil:
			r.add(Secret, e.ValueFrom.SecretKeyRef.Name)
		}
	}
}
