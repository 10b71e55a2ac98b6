package event

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kube takes events as client-go's recorders do. It implements
// record.EventRecorder; events of other objects than pods and the node are dropped.
type Kube struct{ *Recorder }

// Event implements record.EventRecorder.
func (k Kube) Event(object runtime.Object, eventType, reason, message string) {
	switch object := object.(type) {
	case *v1.Pod:
		k.Pod(object, eventType, reason, message)
	case *v1.Node: // there is one only
		k.Node(eventType, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (k Kube) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	k.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder; annotations are dropped.
func (k Kube) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	k.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}
