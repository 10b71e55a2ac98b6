// Package event sends Events about the Node. It owns their form, and holds a bounded
// number of them while the apiserver is away; nothing ever waits for one. It must never decide what is worth an Event.
package event

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

const (
	// waiting is how many Events may wait.
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
type Sender struct {
	nodeName string
	client   client.EventInterface
	queue    chan *v1.Event
	sent     atomic.Int64 // Makes the names of Events of one instant differ.

	mu     sync.Mutex
	recent []Sent // oldest first
}

// New returns a Sender; client is nil without an apiserver, Events are logged then.
func New(nodeName string, client client.EventInterface) *Sender {
	return &Sender{nodeName: nodeName, client: client, queue: make(chan *v1.Event, waiting)}
}

// Send queues an Event and returns at once.
func (s *Sender) Send(ctx context.Context, e node.Event) {
	log := klog.FromContext(ctx)
	log.Info("Node event", "type", e.Type, "reason", e.Reason, "message", e.Message)
	now := metav1.Now()
	s.keep(e, now.Time)
	if s.client == nil {
		return
	}
	event := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", s.nodeName, now.UnixNano()+s.sent.Add(1)), Namespace: metav1.NamespaceDefault},
		// Where others have a UID there is the name: kubectl describe node looks for it.
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.nodeName, UID: types.UID(s.nodeName)},
		Type:           e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: "kubelet", Host: s.nodeName}, ReportingController: "kubelet", ReportingInstance: s.nodeName,
	}
	select {
	case s.queue <- event:
	default:
		log.Info("Node event is dropped, too many are waiting", "reason", e.Reason)
	}
}

// Run sends until ctx is done.
func (s *Sender) Run(ctx context.Context) error {
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
		_, err := s.client.Create(ctx, event, metav1.CreateOptions{})
		cancel()
		if err == nil || apierrors.IsAlreadyExists(err) || parent.Err() != nil {
			return
		}
		if refusal(err) {
			if refused++; refused == attempts {
				log.Error(err, "Node event was not sent", "reason", event.Reason)
				return
			}
		} else if !told {
			told = true
			log.Info("Node event waits for the apiserver", "reason", event.Reason, "err", err)
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
