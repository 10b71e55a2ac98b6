package labels

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestAnotherAgentRecognisesWhatWeMade(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", DeletionGracePeriodSeconds: ptr.To[int64](5),
			Labels: map[string]string{"app": "x", "io.kubernetes.pod.name": "liar"},
			Annotations: map[string]string{
				"a": "b", "polylet.dev/allocated": "all", "polylet.dev/pod-started": "2999-01-01T00:00:00Z", "polylet.dev/cgroup-parent": "/system.slice",
			},
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](30)},
	}
	c := &v1.Container{
		Name: "test_container", Image: "foo/image:v1",
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), "example.com/x": resource.MustParse("1")}},
		Ports:     []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}},
		Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}},
	}
	if got, want := PodLabels(pod), map[string]string{
		"app": "x", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u",
	}; !maps.Equal(got, want) {
		t.Errorf("pod labels %v", got)
	}
	pod.Spec.Containers = []v1.Container{*c}
	if got, err := PodAnnotations(pod); err != nil || !maps.Equal(got, map[string]string{
		"a": "b", "polylet.dev/allocated": `{"containers":{"test_container":{"requests":{"cpu":"1"}}}}`,
	}) {
		t.Errorf("pod annotations %v, %v", got, err)
	}
	if got, want := ContainerLabels(pod, c.Name), map[string]string{
		"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u",
		"io.kubernetes.container.name": "test_container",
	}; !maps.Equal(got, want) {
		t.Errorf("container labels %v", got)
	}
	got, err := ContainerAnnotations(pod, c, 7, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"io.kubernetes.container.hash":                     "8e45cbd0", // what kubelets compute for it
		"io.kubernetes.container.restartCount":             "7",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":3}}`,
		"io.kubernetes.container.ports":                    `[{"containerPort":80,"protocol":"TCP"}]`,
		"io.kubernetes.pod.terminationGracePeriod":         "30",
		"io.kubernetes.pod.deletionGracePeriod":            "5",
		"polylet.dev/restart-backoff":                      "20s",
		"polylet.dev/resources":                            `{"requests":{"cpu":"1"}}`,
		"polylet.dev/restart-backoff-key":                  podutil.BackoffKey(c),
	}
	if !maps.Equal(got, want) {
		t.Errorf("annotations %v", got)
	}
}

func TestWhatIsWrittenOnSandboxesAndContainersFitsIntoOneListOfAll(t *testing.T) {
	long := strings.Repeat("x", 250<<10)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"app": "x"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": long, "small": "kept"},
	}}
	for i := range 10_000 {
		pod.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", 60)
	}
	c := v1.Container{
		Name: "c", Image: "i", TerminationMessagePath: "/" + long,
		Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{long}}}},
	}
	for i := range 10_000 {
		c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: int32(i + 1)})
	}
	pod.Spec.Containers = []v1.Container{c}
	for i := range 10_000 {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprintf("c%d", i), Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")},
		}})
	}
	size := func(of map[string]string) (n int) {
		for k, v := range of {
			n += len(k) + len(v)
		}
		return n
	}
	annotations, err := PodAnnotations(pod)
	if n := size(annotations); err != nil || n > 34<<10 || annotations["small"] != "kept" {
		t.Errorf("a sandbox has annotations of %d bytes, %v", n, err)
	}
	if labels := PodLabels(pod); size(labels) > 17<<10 || labels["app"] != "x" || labels["io.kubernetes.pod.uid"] != "u" {
		t.Errorf("a sandbox has labels of %d bytes", size(labels))
	}
	annotations, err = ContainerAnnotations(pod, &c, 0, 0)
	if n := size(annotations); err != nil || n > 12<<10 {
		t.Errorf("a container has annotations of %d bytes, %v", n, err)
	}
}
