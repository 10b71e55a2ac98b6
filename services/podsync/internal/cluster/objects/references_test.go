package objects

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestReferencesOfAPodAreAllFound(t *testing.T) {
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	keyed := func(cm, secret string) []v1.EnvVar {
		return []v1.EnvVar{
			{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref(cm)}}},
			{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref(secret)}}}, {Value: "x"},
		}
	}
	pod := podWith("p", "c1")
	pod.Spec.RuntimeClassName = ptr.To("rc")
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{ref("s1"), {}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s2"}}},
		v1.Volume{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("c2")}}, {Secret: &v1.SecretProjection{LocalObjectReference: ref("s3")}},
		}}}})
	publish := ref("s7")
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &publish}}})
	pod.Spec.InitContainers = []v1.Container{{Env: keyed("c3", "s4")}}
	pod.Spec.Containers = []v1.Container{{EnvFrom: []v1.EnvFromSource{
		{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("c4")}}, {SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("s5")}},
	}}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Env: keyed("c5", "s6")}}}
	got := References(pod)
	for i, n := range []string{"c1", "c2", "c3", "c4", "c5"} {
		if _, ok := got[Key{ConfigMap, "ns", n}]; !ok {
			t.Errorf("config map %d is missing", i+1)
		}
	}
	for i, n := range []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7"} {
		if _, ok := got[Key{Secret, "ns", n}]; !ok {
			t.Errorf("secret %d is missing", i+1)
		}
	}
	if _, ok := got[Key{Kind: CSIDriver, Name: "d"}]; !ok {
		t.Error("the CSI driver is missing")
	}
	if _, ok := got[Key{Kind: RuntimeClass, Name: "rc"}]; !ok || len(got) != 14 {
		t.Errorf("got %d references: %v", len(got), got)
	}
}
