// Package event sends Events about the Node, and about what of a pod is seen on the node
// alone. It owns their form, and holds a bounded number of them while the apiserver is
// away; nothing ever waits for one. It must never decide what is worth an Event.
package event

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

const (
	// waiting is how many Events about the Node may wait.
	waiting = 100
	// attempts to send one that the apiserver refuses: who may do what is known to it
	// only some time after its start.
	attempts = 5
	// pause after the first that fails; it doubles to longest.
	pause    = 3 * time.Second
	longest  = time.Minute
	deadline = 10 * time.Second
)

// Sender sends. Safe for concurrent use.
//
// What pods do decides how many Events there are about them, and their namespaces whether
// the apiserver takes one: those about the Node do not wait for them, nor does a namespace
// for another.
type Sender struct {
	nodeName string
	client   client.EventInterface
	queue    chan *v1.Event
	ofPods   *ofPods
	sent     atomic.Int64 // Makes the names of Events of one instant differ.

	mu     sync.Mutex
	recent []Sent // oldest first
}

// New returns a Sender; client is one of all namespaces, nil without an apiserver:
// Events are logged then.
func New(nodeName string, client client.EventInterface) *Sender {
	return &Sender{nodeName: nodeName, client: client, queue: make(chan *v1.Event, waiting), ofPods: newOfPods()}
}

// Send queues an Event and returns at once.
func (s *Sender) Send(ctx context.Context, e node.Event) {
	now := time.Now()
	s.queueNode(ctx, e, now, fmt.Sprintf("%x", now.UnixNano()+s.sent.Add(1)))
}

// SendOnce does so with an Event that may have been sent before, by a process that has
// ended since: of those with one key the apiserver keeps one. The key is lower-case
// letters, digits and dashes; at is when it happened.
func (s *Sender) SendOnce(ctx context.Context, e node.Event, at time.Time, key string) {
	s.queueNode(ctx, e, at, key)
}

// SendPodOnce is SendOnce for an Event about a pod, or a container of it.
func (s *Sender) SendPodOnce(ctx context.Context, pod v1.ObjectReference, e node.Event, at time.Time, key string) {
	klog.FromContext(ctx).Info("Pod event", "pod", klog.KRef(pod.Namespace, pod.Name), "type", e.Type, "reason", e.Reason, "message", e.Message)
	if s.client == nil {
		return
	}
	if without := s.ofPods.add(s.event(pod, pod.Namespace, e, at, pod.Name, key)); without != nil {
		dropped(ctx, without)
	}
}

func (s *Sender) queueNode(ctx context.Context, e node.Event, at time.Time, key string) {
	klog.FromContext(ctx).Info("Node event", "type", e.Type, "reason", e.Reason, "message", e.Message)
	s.keep(e, at)
	// Where others have a UID there is the name: kubectl describe node looks for it.
	about := v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.nodeName, UID: types.UID(s.nodeName)}
	if s.client == nil {
		return
	}
	event := s.event(about, metav1.NamespaceDefault, e, at, s.nodeName, key)
	select {
	case s.queue <- event:
	default:
		dropped(ctx, event)
	}
}

func dropped(ctx context.Context, event *v1.Event) {
	klog.FromContext(ctx).Info("Event is dropped, too many are waiting", "kind", event.InvolvedObject.Kind, "reason", event.Reason)
}

func (s *Sender) event(about v1.ObjectReference, namespace string, e node.Event, at time.Time, of, key string) *v1.Event {
	when := metav1.NewTime(at)
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: named(of, key), Namespace: namespace}, InvolvedObject: about,
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: when, LastTimestamp: when,
		Source: v1.EventSource{Component: "kubelet", Host: s.nodeName}, ReportingController: "kubelet", ReportingInstance: s.nodeName,
	}
}

// named is an Event's name: that of what it is about, which may be as long as a name can
// be, with the key.
func named(of, key string) string {
	name := of + "." + key
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return fmt.Sprintf("%x.%s", sha256.Sum256([]byte(of)), key)
}

// Run sends until ctx is done.
func (s *Sender) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { s.drainPods(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-s.queue:
			s.send(ctx, event)
		}
	}
}

// send sends one Event: until the apiserver has taken it, or refused it a few times.
func (s *Sender) send(parent context.Context, event *v1.Event) {
	log := klog.FromContext(parent)
	delay := backoff.New(backoff.Config{Initial: pause, Max: longest, Jitter: 0.2})
	told := false
	for refused := 0; ; {
		ctx, cancel := context.WithTimeout(parent, deadline)
		_, err := s.client.CreateWithEventNamespaceWithContext(ctx, event)
		cancel()
		if err == nil || apierrors.IsAlreadyExists(err) || parent.Err() != nil {
			return
		}
		if refusal(err) {
			if refused++; refused == attempts || hopeless(err) {
				log.Error(err, "Event was not sent", "kind", event.InvolvedObject.Kind, "reason", event.Reason)
				return
			}
		} else if !told {
			told = true
			log.Info("Event waits for the apiserver", "kind", event.InvolvedObject.Kind, "reason", event.Reason, "err", err)
		}
		if delay.Wait(parent) != nil {
			return
		}
	}
}

// refusal says whether an apiserver that could have taken an Event did not.
func refusal(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsUnauthorized(err)
}

// hopeless says whether an Event is refused however often it is sent: it is none, or its
// namespace is going or gone.
func hopeless(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause)
}
