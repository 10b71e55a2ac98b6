package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkSetUnchanged is what each look of a worker costs when there is
// nothing to say.
func BenchmarkSetUnchanged(b *testing.B) {
	w := New(Config{}, Deps{})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	st := running("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		w.Set(pod, st)
	}
}

// BenchmarkPatch is what one PATCH costs to build.
func BenchmarkPatch(b *testing.B) {
	st := normalize(running("10.0.0.1"), v1.PodStatus{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildPatch("u", st, v1.PodStatus{}); err != nil {
			b.Fatal(err)
		}
	}
}
