package document

import (
	"fmt"
	"io"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// BenchmarkPodList times the document of /pods with 20 pods: as they were the last time,
// and all of them changed.
func BenchmarkPodList(b *testing.B) {
	encode := func(round int) [][]byte {
		var pods [][]byte
		for i := range 20 {
			pod := v1.Pod{}
			pod.Name, pod.Namespace = fmt.Sprintf("pod-%d", i), "default"
			pod.Annotations = map[string]string{"round": fmt.Sprint(round)}
			for c := range 3 {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
					Name: fmt.Sprintf("c%d", c), Image: "registry.local/app:1", Command: []string{"/app", "--flag"},
					Env: []v1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
				})
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: fmt.Sprintf("c%d", c), Ready: true})
			}
			raw, err := pod.Marshal()
			if err != nil {
				b.Fatal(err)
			}
			pods = append(pods, raw)
		}
		return pods
	}
	rounds := [][][]byte{encode(0), encode(1)}
	for name, changing := range map[string]int{"unchanged": 0, "changed": 1} {
		b.Run(name, func(b *testing.B) {
			n := 0
			var list PodList
			b.ReportAllocs()
			for b.Loop() {
				n++
				if _, err := list.Write(io.Discard, rounds[n%2*changing], Version{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
