package podutil

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func annotated(key, value string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
}

func TestWhereAPodComesFrom(t *testing.T) {
	system, almost := int32(2_000_000_000), int32(1_999_999_999)
	mirror := annotated(AnnotationMirror, "hash")
	mirror.Annotations[AnnotationSource] = "file"
	for name, tc := range map[string]struct {
		pod                      *v1.Pod
		static, mirror, critical bool
	}{
		"no annotation":       {&v1.Pod{}, false, false, false},
		"of the apiserver":    {annotated(AnnotationSource, SourceAPI), false, false, false},
		"of a file":           {annotated(AnnotationSource, "file"), true, false, true},
		"of a URL":            {annotated(AnnotationSource, "http"), true, false, true},
		"a mirror":            {annotated(AnnotationMirror, "hash"), false, true, true},
		"a mirror of a file":  {mirror, false, true, true},
		"a system's priority": {&v1.Pod{Spec: v1.PodSpec{Priority: &system}}, false, false, true},
		"one below that":      {&v1.Pod{Spec: v1.PodSpec{Priority: &almost}}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if static, mirror, critical := Static(tc.pod), Mirror(tc.pod), Critical(tc.pod); static != tc.static || mirror != tc.mirror || critical != tc.critical {
				t.Errorf("static %v, mirror %v, critical %v", static, mirror, critical)
			}
		})
	}
}
