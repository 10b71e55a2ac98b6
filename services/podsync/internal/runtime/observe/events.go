package observe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// noEventsPeriod is how often a runtime without events is asked again: it may
// have been replaced by one that has them.
const noEventsPeriod = 5 * time.Minute

// followEvents keeps the stream open until ctx is done.
func (o *Observer) followEvents(ctx context.Context) {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: .2, ResetAfter: 10 * time.Second})
	told := false
	for ctx.Err() == nil {
		began := time.Now()
		err := o.stream(ctx)
		o.metrics.EventsEnded(o.Runtime().Events, time.Since(began))
		o.setEvents(false)
		o.kick.Set()
		o.check.Set()
		if ctx.Err() != nil {
			return
		}
		if !cri.IsUnimplemented(err) {
			_ = retry.Wait(ctx)
			continue
		}
		if !told {
			told = true
			log.Info("The runtime sends no container events; containers are listed instead", "every", o.cfg.RelistNoEvents.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(noEventsPeriod):
		}
	}
}

// stream opens the stream and takes events in until it breaks. What happened
// before it stood is found by a list.
func (o *Observer) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, err := o.client.Events(ctx)
	if err != nil {
		return err
	}
	doubted := o.trust.opened(cancel)
	defer o.trust.closed()
	// A runtime without events says so at once; one with events says nothing
	// until there is one. After a stream that was dead, one has to come first.
	if !doubted {
		settled := time.AfterFunc(time.Second, o.eventsCome)
		defer settled.Stop()
	}
	for {
		ev, err := next()
		if err != nil {
			return err
		}
		o.trust.heard()
		o.eventsCome()
		o.take(ctx, ev)
	}
}

// eventsCome says that what happens is told of: lists become slow.
func (o *Observer) eventsCome() {
	if !o.setEvents(true) {
		o.kick.Set()
	}
}

// setEvents notes whether events come, and returns what was noted before.
func (o *Observer) setEvents(on bool) (before bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before = o.runtime.Events
	if on && !before {
		o.metrics.EventsOpened()
	}
	o.runtime.Events = on
	return before
}

// take brings one event's statuses into the table. An event that does not say
// all makes the observer look itself.
func (o *Observer) take(ctx context.Context, ev *runtimeapi.ContainerEventResponse) {
	id := ev.GetContainerId()
	if ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		o.table.remove(id)
		return
	}
	sandbox := ev.GetPodSandboxStatus()
	if sandbox == nil {
		o.lookFor(ctx, ev)
		return
	}
	o.table.setSandbox(sandbox)
	at := time.Now()
	if age := at.Sub(time.Unix(0, ev.GetCreatedAt())); ev.GetCreatedAt() > 0 && age > 0 {
		at = at.Add(-age) // counted from now: a clock that is set back does not make it the newest for long
	}
	at = at.Add(-1) // and what was looked up in the same moment came after it
	seen := sandbox.GetId() == id
	stopped := ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	for _, st := range ev.GetContainersStatuses() {
		if st.GetId() == id {
			seen = !stopped || convertState(st.GetState()) == podstate.StateExited
		}
		o.table.setContainer(st, sandbox.GetId(), at)
	}
	if !seen {
		o.lookFor(ctx, ev)
	}
}

// lookFor looks at the pod that an event is about, or at everything when it
// does not say.
func (o *Observer) lookFor(ctx context.Context, ev *runtimeapi.ContainerEventResponse) {
	uid, ok := o.table.ownerOf(ev.GetContainerId())
	if !ok {
		uid = types.UID(ev.GetPodSandboxStatus().GetLabels()[cri.LabelPodUID])
	}
	if uid == "" {
		o.kick.Set()
		return
	}
	o.lookLater(ctx, uid, nil)
}
