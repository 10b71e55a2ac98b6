package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
)

// told is the shape of a pod that reads of itself what may change while it runs.
const told = "told of itself"

// tellsItself makes a pod with a volume of its label, annotation and size.
func tellsItself(m *maker) {
	m.sized(m.main(m.forever()))
	m.pod.Annotations = map[string]string{"note": "first"}
	m.pod.Labels = map[string]string{"color": "first"}
	m.spec.Volumes = []v1.Volume{{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
		{Path: "note", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['note']"}},
		{Path: "color", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['color']"}},
		{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c0", Resource: "requests.memory"}},
	}}}}}
	m.spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "self", MountPath: "/self"}}
}

// changesOf plans changes of what a pod reads of itself: while it is set up, as
// network plugins do, and later.
func (s *scenario) changesOf(sub *subject, created time.Duration, rng *rand.Rand) {
	for i := range 1 + rng.IntN(3) {
		at, note := created+time.Duration(rng.Int64N(int64(2*time.Second))), fmt.Sprint("note-", i)
		if rng.IntN(3) == 0 {
			at = created + time.Duration(rng.Int64N(int64(s.noisy-created)))
		}
		s.add(at, "annotate "+sub.pod.Name, func(w *world) { w.annotate(sub, note) })
	}
}

func (w *world) annotate(sub *subject, note string) {
	w.update(sub, func(pod *v1.Pod) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["note"] = note
	})
}

// staleSelf says whether a volume does not show what its pod is now.
func (w *world) staleSelf(sub *subject, pod *v1.Pod) string {
	if sub.shape != told || ended(pod) {
		return ""
	}
	size := &pod.Spec.Containers[0].Resources
	want := map[string]string{"note": pod.Annotations["note"], "color": pod.Labels["color"]}
	if st := pod.Status.ContainerStatuses; len(st) > 0 && st[0].AllocatedResources.Memory().Equal(*size.Requests.Memory()) {
		want["memory"] = fmt.Sprint(size.Requests.Memory().Value())
	}
	for file, value := range want {
		data, err := os.ReadFile(filepath.Join(w.dir, "root", "pods", string(pod.UID), "volumes", "kubernetes.io~downward-api", "self", file))
		if err != nil || string(data) != value {
			return fmt.Sprintf("has %q in the file of its %s, not %q (%v)", data, file, value, err)
		}
	}
	return ""
}
