package event

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// idleSink sends events while the node has nothing better to do, or when they
// have waited long enough. One after the other, so that their order stays.
type idleSink struct {
	record.EventSink
	ctx      context.Context
	waitIdle func(ctx context.Context, since, until time.Time)
}

func (r *Recorder) idleSink(ctx context.Context, sink record.EventSink) record.EventSink {
	if r.deps.WaitIdle == nil {
		return sink
	}
	return &idleSink{sink, ctx, r.deps.WaitIdle}
}

// Create implements record.EventSink.
func (p *idleSink) Create(e *v1.Event) (*v1.Event, error) {
	p.wait(e)
	return p.EventSink.Create(e)
}

// Patch implements record.EventSink.
func (p *idleSink) Patch(e *v1.Event, data []byte) (*v1.Event, error) {
	p.wait(e)
	return p.EventSink.Patch(e, data)
}

func (p *idleSink) wait(e *v1.Event) {
	p.waitIdle(p.ctx, e.LastTimestamp.Time, e.LastTimestamp.Add(mostHeld))
}
