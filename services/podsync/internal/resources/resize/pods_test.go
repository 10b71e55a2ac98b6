package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// pod has a container c with these requests, and a limit of twice the memory
// when the class is Guaranteed the requests are the limits.
func pod(uid string, class v1.PodQOSClass, requests v1.ResourceList, edit ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Status: v1.PodStatus{QOSClass: class},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}}},
	}
	if class == v1.PodQOSGuaranteed {
		p.Spec.Containers[0].Resources.Limits = requests.DeepCopy()
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func level(requests v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: requests} }
}

func withInit(policy *v1.ContainerRestartPolicy, requests v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i", RestartPolicy: policy, Resources: v1.ResourceRequirements{Requests: requests}}}
	}
}
