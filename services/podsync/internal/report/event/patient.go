package event

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// patient sends events while the node has nothing better to do, or when they
// have waited long enough. One after the other, so that their order stays.
type patient struct {
	record.EventSink
	ctx  context.Context
	lull func(ctx context.Context, since, until time.Time)
}

func (r *Recorder) patient(ctx context.Context, sink record.EventSink) record.EventSink {
	if r.deps.Lull == nil {
		return sink
	}
	return &patient{sink, ctx, r.deps.Lull}
}

// Create implements record.EventSink.
func (p *patient) Create(e *v1.Event) (*v1.Event, error) {
	p.wait(e)
	return p.EventSink.Create(e)
}

// Patch implements record.EventSink.
func (p *patient) Patch(e *v1.Event, data []byte) (*v1.Event, error) {
	p.wait(e)
	return p.EventSink.Patch(e, data)
}

func (p *patient) wait(e *v1.Event) {
	p.lull(p.ctx, e.LastTimestamp.Time, e.LastTimestamp.Add(patience))
}
