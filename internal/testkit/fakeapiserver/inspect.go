package fakeapiserver

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pod returns a copy of a pod, or nil.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	pod, _ := s.stored("pods", namespace, name).(*corev1.Pod)
	return pod
}

// Node returns a copy of a node, or nil.
func (s *Server) Node(name string) *corev1.Node {
	node, _ := s.stored("nodes", "", name).(*corev1.Node)
	return node
}

// Claim returns a copy of a PersistentVolumeClaim, or nil.
func (s *Server) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	claim, _ := s.stored("persistentvolumeclaims", namespace, name).(*corev1.PersistentVolumeClaim)
	return claim
}

func (s *Server) stored(resource, namespace, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.tables[corev1.SchemeGroupVersion.WithResource(resource)].objects[key(namespace, name)]
	if e == nil {
		return nil
	}
	return e.obj.DeepCopyObject()
}

// Pods returns copies of all pods, ordered by namespace and name.
func (s *Server) Pods() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[corev1.SchemeGroupVersion.WithResource("pods")]
	var pods []*corev1.Pod
	for _, k := range t.keys() {
		pods = append(pods, t.objects[k].obj.DeepCopyObject().(*corev1.Pod))
	}
	return pods
}

// EachPod shows all pods as they are stored, ordered by namespace and name, under the
// server's lock: see must neither call the Server nor change or keep the pod.
func (s *Server) EachPod(see func(*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[corev1.SchemeGroupVersion.WithResource("pods")]
	for _, k := range t.keys() {
		see(t.objects[k].obj.(*corev1.Pod))
	}
}

// Events returns copies of all events in the core form, ordered by namespace and name.
func (s *Server) Events() []corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[corev1.SchemeGroupVersion.WithResource("events")]
	var events []corev1.Event
	for _, k := range t.keys() {
		events = append(events, *t.objects[k].obj.DeepCopyObject().(*corev1.Event))
	}
	return events
}

// Writes returns every change so far, in order. The objects are shared.
func (s *Server) Writes() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// StatusHistory returns the writes of one pod's status, in order.
func (s *Server) StatusHistory(namespace, name string) []Write {
	return slices.DeleteFunc(s.Writes(), func(w Write) bool {
		if w.GVR.Resource != "pods" || w.Subresource != "status" || w.New == nil {
			return true
		}
		m := metaOf(w.New)
		return m.GetNamespace() != namespace || m.GetName() != name
	})
}

// Requests returns the finished requests, in the order of their ends.
func (s *Server) Requests() []RequestLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Calls counts the requests by verb and resource, such as "patch pods/status".
func (s *Server) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}
