package podutil

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQOSClassFollowsRequestsAndLimits(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	of := func(all ...v1.ResourceRequirements) *v1.Pod {
		pod := &v1.Pod{}
		for _, r := range all {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
		}
		return pod
	}
	both := v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi")}
	withInit := of(both)
	withInit.Spec.InitContainers = []v1.Container{{}}
	withDebug := of(both)
	withDebug.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	itsOwn := of(v1.ResourceRequirements{})
	itsOwn.Spec.Resources = &both
	told := of(both)
	told.Status.QOSClass = v1.PodQOSBurstable
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		"no container":              {of(), v1.PodQOSBestEffort},
		"nothing":                   {of(v1.ResourceRequirements{}), v1.PodQOSBestEffort},
		"a request":                 {of(v1.ResourceRequirements{Requests: list("cpu", "1")}), v1.PodQOSBurstable},
		"a request of nothing":      {of(v1.ResourceRequirements{Requests: list("cpu", "0")}), v1.PodQOSBestEffort},
		"one limit":                 {of(v1.ResourceRequirements{Limits: list("cpu", "1")}), v1.PodQOSBurstable},
		"both limits":               {of(both), v1.PodQOSGuaranteed},
		"a lower request":           {of(v1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: both.Limits}), v1.PodQOSBurstable},
		"other resources":           {of(v1.ResourceRequirements{Limits: list("example.com/x", "1")}), v1.PodQOSBestEffort},
		"two, one without":          {of(both, v1.ResourceRequirements{}), v1.PodQOSBurstable},
		"an init container without": {withInit, v1.PodQOSBurstable},
		"an ephemeral one without":  {withDebug, v1.PodQOSGuaranteed},
		"the pod's own":             {itsOwn, v1.PodQOSGuaranteed},
		"the apiserver has said":    {told, v1.PodQOSBurstable},
	} {
		if got := QOS(tc.pod); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
