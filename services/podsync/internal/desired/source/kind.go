package source

import v1 "k8s.io/api/core/v1"

// IsStatic says whether a pod comes from a file or URL.
func IsStatic(pod *v1.Pod) bool {
	src := pod.Annotations[AnnotationSource]
	return src != "" && src != API && !IsMirror(pod)
}

// IsMirror says whether a pod is the apiserver's mirror of a static pod.
func IsMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}
