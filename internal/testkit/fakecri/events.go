package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// retention is how long containerd keeps events while nobody subscribes.
const retention = 5 * time.Minute

// lingering is how long a subscriber whose client has gone swallows events, counted from
// the first one after the client went. containerd finds out by a failed send only; what
// comes meanwhile is not kept for the next subscriber.
const lingering = 100 * time.Millisecond

// eventQueue hands events to every subscriber; without one it keeps them for a while.
type eventQueue struct {
	subscribers map[*subscriber]struct{}
	pending     []*runtimeapi.ContainerEventResponse
}

type subscriber struct {
	queue []*runtimeapi.ContainerEventResponse
	wake  chan struct{}
	gone  bool      // the client went
	deaf  bool      // the stream hangs
	until time.Time // end of the lingering; zero before the first event
}

// emitLocked announces a change of a container, or of the sandbox itself when id is the
// sandbox's.
func (r *Runtime) emitLocked(id string, s *sandbox, kind runtimeapi.ContainerEventType) {
	if r.down || r.cfg.NoEvents {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
	}
	if r.sandboxes[s.id] == s {
		ev.PodSandboxStatus = s.status()
		for _, c := range s.containers() {
			ev.ContainersStatuses = append(ev.ContainersStatuses, c.status())
		}
	}
	f := r.fault(context.Background(), "event", ev)
	if f.DropEvent {
		return
	}
	times := 1
	if f.DupEvent {
		times = 2
	}
	for range times {
		if f.DelayEvent > 0 {
			r.afterLocked(f.DelayEvent, func() { r.deliverLocked(ev) })
		} else {
			r.deliverLocked(ev)
		}
	}
}

// deliverLocked puts an event into the queue of each who listens.
func (r *Runtime) deliverLocked(ev *runtimeapi.ContainerEventResponse) {
	q := &r.events
	for sub := range q.subscribers {
		if sub.gone && !sub.until.IsZero() && time.Now().After(sub.until) {
			delete(q.subscribers, sub)
		}
	}
	if len(q.subscribers) == 0 {
		if !r.down {
			q.pending = append(q.pending, ev)
		}
		return
	}
	for sub := range q.subscribers {
		switch {
		case sub.deaf:
		case !sub.gone:
			sub.push(ev)
		case sub.until.IsZero():
			sub.until = time.Now().Add(lingering)
		}
	}
}

// HangEvents lets the streams of events that are open now stand and say nothing more;
// what happens meanwhile is lost to their clients. Streams that are opened later work.
func (r *Runtime) HangEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sub := range r.events.subscribers {
		sub.deaf, sub.queue = true, nil
	}
}

func (s *subscriber) push(ev *runtimeapi.ContainerEventResponse) {
	s.queue = append(s.queue, ev)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// GetContainerEvents streams events until the client goes. The first subscriber gets
// what was kept before it came; a later one does not, see lingering.
func (svc *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	r := svc.r
	if r.cfg.NoEvents {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	sub := r.subscribe()
	defer func() {
		r.mu.Lock()
		sub.gone = true
		r.mu.Unlock()
	}()
	for {
		r.mu.Lock()
		batch := sub.queue
		sub.queue = nil
		r.mu.Unlock()
		for _, ev := range batch {
			if err := stream.Send(ev); err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-sub.wake:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-r.closed:
			return status.Error(codes.Unavailable, "the fake runtime was closed")
		}
	}
}

func (r *Runtime) subscribe() *subscriber {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub := &subscriber{wake: make(chan struct{}, 1)}
	if r.events.subscribers == nil {
		r.events.subscribers = map[*subscriber]struct{}{}
	}
	oldest := time.Now().Add(-retention).UnixNano()
	for _, ev := range r.events.pending {
		if ev.GetCreatedAt() >= oldest {
			sub.queue = append(sub.queue, ev)
		}
	}
	r.events.pending = nil
	r.events.subscribers[sub] = struct{}{}
	return sub
}
