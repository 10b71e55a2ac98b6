package downward

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u",
			Labels:      map[string]string{"b": "2", "a": "1\n\"x\""},
			Annotations: map[string]string{"example.com/x": "y"},
		},
		Spec: v1.PodSpec{
			ServiceAccountName: "sa",
			Containers: []v1.Container{{
				Name: "c",
				Resources: v1.ResourceRequirements{
					Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")},
					Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("33Mi")},
				},
			}},
			InitContainers: []v1.Container{{Name: "i"}},
		},
	}
}

func TestFieldsOfAPod(t *testing.T) {
	node := Node{Name: "n", HostIPs: []string{"10.0.0.1", "fd00::1"}, PodIPs: []string{"10.1.0.1", "fd01::1"}}
	for path, want := range map[string]string{
		"metadata.name":                         "p",
		"metadata.namespace":                    "ns",
		"metadata.uid":                          "u",
		"metadata.labels":                       "a=\"1\\n\\\"x\\\"\"\nb=\"2\"",
		"metadata.annotations":                  `example.com/x="y"`,
		"metadata.labels['b']":                  "2",
		"metadata.labels['none']":               "",
		"metadata.annotations['example.com/x']": "y",
		"spec.nodeName":                         "n",
		"spec.host":                             "n",
		"spec.serviceAccountName":               "sa",
		"status.hostIP":                         "10.0.0.1",
		"status.hostIPs":                        "10.0.0.1,fd00::1",
		"status.podIP":                          "10.1.0.1",
		"status.podIPs":                         "10.1.0.1,fd01::1",
	} {
		if got, err := Field(pod(), path, node); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"spec.containers", "metadata.labels['x", "", "metadata.labelsx"} {
		if got, err := Field(pod(), path, node); err == nil {
			t.Errorf("%q = %q, want an error", path, got)
		}
	}
}

func TestResourcesAreDividedRoundedUpAndDefaulted(t *testing.T) {
	allocatable := v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourceCPU: resource.MustParse("2")}
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"", "limits.cpu", "", "2"},
		{"", "limits.cpu", "1m", "1500"},
		{"", "limits.memory", "1Mi", "4096"},
		{"", "requests.memory", "10Mi", "4"},
		{"", "requests.cpu", "", "0"},
		{"i", "limits.cpu", "", "2"},
		{"i", "limits.hugepages-2Mi", "", "0"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		p := pod()
		if got, err := Resource(p, &p.Spec.Containers[0], ref, allocatable); err != nil || got != c.want {
			t.Errorf("%+v = %q, %v", c, got, err)
		}
	}
	for _, r := range []string{"limits.gpu", "cpu", "x.cpu"} {
		p := pod()
		if got, err := Resource(p, &p.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: r}, nil); err == nil {
			t.Errorf("%s = %q, want an error", r, got)
		}
	}
	if _, err := Resource(pod(), nil, &v1.ResourceFieldSelector{ContainerName: "no", Resource: "limits.cpu"}, nil); err == nil {
		t.Error("a container that does not exist was found")
	}
}

func TestThePodsOwnLimitComesBeforeTheNodes(t *testing.T) {
	p := pod()
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	got, err := Resource(p, &p.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}, nil)
	if err != nil || got != "1024" {
		t.Errorf("limits.memory = %q, %v; want 1024", got, err)
	}
}

func TestTheNodesAddressIsNotEmpty(t *testing.T) {
	for _, path := range []string{"status.hostIP", "status.hostIPs"} {
		if value, err := Field(pod(), path, Node{}); err == nil {
			t.Errorf("%s of a node whose addresses are not known is %q without an error", path, value)
		}
		if value, err := Field(pod(), path, Node{HostIPs: []string{"192.0.2.1"}}); err != nil || value != "192.0.2.1" {
			t.Errorf("%s is %q, %v", path, value, err)
		}
	}
}
