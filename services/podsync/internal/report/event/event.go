// Package event owns the Kubernetes events that podsync sends: their objects,
// their source, and that a node without an apiserver logs them instead. It must
// never block the caller, and never decide what is worth an event.
package event

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Config of a Recorder.
type Config struct {
	// NodeName is the host in the event's source.
	NodeName string
	// Component of the source; "kubelet" when empty.
	Component string
}

// Deps is what a Recorder is given.
type Deps struct {
	// Client is nil when there is no apiserver: events are logged only.
	Client kubernetes.Interface
	// WaitIdle waits until the node has nothing to do that somebody waits for, in a
	// moment that began no sooner than since, at most until the time is up. Nil:
	// events are sent at once.
	WaitIdle func(ctx context.Context, since, until time.Time)
}

// mostHeld is how long an event is held back on a busy node.
const mostHeld = 2 * time.Second

// mostMessage bounds an event's message, in bytes: what the spec of a pod says may be
// in it, a megabyte, and each event is written to the apiserver and its database.
const mostMessage = 8 << 10

// kept is how many events are kept until Run; later ones are dropped.
const kept = 1000

// Recorder sends events. Safe for concurrent use, before Run too.
type Recorder struct {
	cfg  Config
	deps Deps

	mu     sync.Mutex
	sink   record.EventRecorder // nil before Run
	logger klog.Logger
	early  []note

	recent ring
}

// note is one event.
type note struct {
	ref                        *v1.ObjectReference
	eventType, reason, message string
	annotations                map[string]string // of the event
}

// New returns a Recorder that keeps events until Run.
func New(cfg Config, deps Deps) *Recorder {
	if cfg.Component == "" {
		cfg.Component = "kubelet" // what users and tests of clusters filter by
	}
	return &Recorder{cfg: cfg, deps: deps, logger: klog.Background()}
}

// Run sends events until ctx is done.
func (r *Recorder) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	if r.deps.Client != nil {
		broadcaster.StartRecordingToSink(r.idleSink(ctx, laterSink{&typedv1.EventSinkImpl{Interface: r.deps.Client.CoreV1().Events("")}}))
	}
	r.mu.Lock()
	r.logger = klog.FromContext(ctx).WithName("event")
	r.sink = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: r.cfg.Component, Host: r.cfg.NodeName})
	early := r.early
	r.early = nil
	r.mu.Unlock()
	for _, n := range early {
		r.send(n)
	}
	<-ctx.Done()
	r.mu.Lock()
	r.sink = nil
	r.mu.Unlock()
	return nil
}

// Pod records an event on a pod. eventType is v1.EventTypeNormal or Warning.
func (r *Recorder) Pod(pod *v1.Pod, eventType, reason, message string) {
	r.record(note{ref: podRef(pod, ""), eventType: eventType, reason: reason, message: message})
}

// Annotated is Pod with annotations of the event.
func (r *Recorder) Annotated(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	r.record(note{podRef(pod, ""), eventType, reason, message, annotations})
}

// Claim records an event on a claim of a pod.
func (r *Recorder) Claim(claim *v1.PersistentVolumeClaim, eventType, reason, message string) {
	r.record(note{ref: &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		ResourceVersion: claim.ResourceVersion,
	}, eventType: eventType, reason: reason, message: message})
}

// Volume records an event on a volume of a claim.
func (r *Recorder) Volume(pv *v1.PersistentVolume, eventType, reason, message string) {
	r.record(note{ref: &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
	}, eventType: eventType, reason: reason, message: message})
}

// Container records an event on a container of a pod (fieldPath
// spec.containers{name}, spec.initContainers{name} or spec.ephemeralContainers{name}).
func (r *Recorder) Container(pod *v1.Pod, container, eventType, reason, message string) {
	r.record(note{ref: podRef(pod, fieldPath(pod, container)), eventType: eventType, reason: reason, message: message})
}

// Node records an event on this node. Like the kubelet's, it names the node
// where others have a UID, so that kubectl describe node finds it.
func (r *Recorder) Node(eventType, reason, message string) {
	r.record(note{
		ref: &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.cfg.NodeName, UID: types.UID(r.cfg.NodeName)}, eventType: eventType, reason: reason, message: message,
	})
}

func (r *Recorder) record(n note) {
	// What is no text, a file's name in an error, cannot be sent, nor what is with it.
	n.message = strings.ToValidUTF8(n.message, "\uFFFD")
	if len(n.message) > mostMessage {
		n.message = strings.ToValidUTF8(n.message[:mostMessage], "") + " …"
	}
	r.keep(n)
	r.send(n)
}

func (r *Recorder) send(n note) {
	r.mu.Lock()
	sink, logger := r.sink, r.logger
	if sink == nil {
		if len(r.early) < kept {
			r.early = append(r.early, n)
		}
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	logger.V(2).Info("Event", "object", klog.KRef(n.ref.Namespace, n.ref.Name), "fieldPath", n.ref.FieldPath, "type", n.eventType, "reason", n.reason, "message", n.message)
	if r.deps.Client != nil {
		sink.AnnotatedEventf(n.ref, n.annotations, n.eventType, n.reason, "%s", n.message)
	}
}

func podRef(pod *v1.Pod, path string) *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: path,
	}
}

// fieldPath says where in the pod's spec the container stands; empty when nowhere.
func fieldPath(pod *v1.Pod, name string) string {
	switch _, kind := podutil.Container(pod, name); kind {
	case podutil.Regular:
		return fmt.Sprintf("spec.containers{%s}", name)
	case podutil.Init:
		return fmt.Sprintf("spec.initContainers{%s}", name)
	case podutil.Ephemeral:
		return fmt.Sprintf("spec.ephemeralContainers{%s}", name)
	default:
		return ""
	}
}
