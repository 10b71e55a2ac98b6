package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// conn is a run of nodestatus' connection to podsync or stats: calls are made at once, in
// the goroutine that makes them, so that nothing but what is called decides who goes first.
type conn struct {
	w    *world
	peer *process
	run  *run
}

// call is one that nodestatus makes.
type call struct {
	method string // the last part of its name
	req    proto.Message
}

// Invoke implements grpc.ClientConnInterface.
func (c *conn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	req := proto.Clone(args.(proto.Message))
	do := func(ctx context.Context, req proto.Message) (proto.Message, error) {
		return c.peer.answer(ctx, c.run, name, req)
	}
	var out proto.Message
	var err error
	if s := c.w.sabotage; s != nil && s.call != nil {
		out, err = s.call(ctx, c.w, call{name, req}, do)
	} else {
		out, err = do(ctx, req)
	}
	if c.run.dead() {
		return status.FromContextError(context.Canceled).Err()
	}
	if err != nil {
		return rpcerr.ToStatus(err).Err()
	}
	proto.Merge(reply.(proto.Message), out)
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (c *conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return &stream{conn: c, ctx: ctx, name: name, life: -1}, nil
}

// stream is one that nodestatus reads; next belongs to it alone.
type stream struct {
	conn *conn
	ctx  context.Context
	name string
	req  proto.Message
	// life is the peer's when it was opened.
	life int
	next func(ctx context.Context) (proto.Message, error)
}

func (s *stream) Header() (metadata.MD, error) { return nil, nil }
func (s *stream) Trailer() metadata.MD         { return nil }
func (s *stream) CloseSend() error             { return nil }
func (s *stream) Context() context.Context     { return s.ctx }
func (s *stream) SendMsg(m any) error {
	s.req = m.(proto.Message)
	return nil
}

func (s *stream) RecvMsg(m any) error {
	p := s.conn.peer
	if s.next == nil {
		life, err := p.reach(s.ctx, s.name)
		if err != nil {
			return rpcerr.ToStatus(err).Err()
		}
		s.life, s.next = life, p.open(s.conn.run, s.name, s.req)
	}
	next := s.next
	if shot := s.conn.w.sabotage; shot != nil && shot.stream != nil && s.name == "WatchSignals" {
		next = func(ctx context.Context) (proto.Message, error) { return shot.stream(ctx, s.conn.w, s.next) }
	}
	out, err := next(s.ctx)
	if err == nil && p.lives() != s.life && (p.w.sabotage == nil || p.w.sabotage.stream == nil) {
		err = fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
	}
	if err != nil {
		return rpcerr.ToStatus(err).Err()
	}
	proto.Merge(m.(proto.Message), out)
	return nil
}

// process is podsync or stats: it is there, or not, or hangs, and answers calls late.
type process struct {
	w    *world
	name string
	// handle answers a call, open begins a stream.
	handle func(ctx context.Context, run *run, method string, req proto.Message) (proto.Message, error)
	open   func(run *run, method string, req proto.Message) func(ctx context.Context) (proto.Message, error)

	// The rest is under the world's lock.

	// life counts its starts; down: it is not there. hangs: it does not answer; silent: it
	// answers, and its streams tell nothing.
	life                int
	down, hangs, silent bool
	// slow is how much longer it takes to answer at most, failing how many calls of a
	// hundred fail.
	slow    time.Duration
	failing int
	calls   map[string]int
}

func (p *process) lives() int {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.down {
		return -2
	}
	return p.life
}

// reach returns when the process takes a call.
func (p *process) reach(ctx context.Context, method string) (life int, err error) {
	p.w.mu.Lock()
	p.calls[method]++
	draw := p.w.draw(p.name, method, p.calls[method])
	latency := time.Duration(draw%10+1) * time.Millisecond
	if p.slow > 0 {
		latency += time.Duration(draw/10) % p.slow
	}
	failing := p.failing > 0 && int(draw/7%100) < p.failing
	p.w.mu.Unlock()
	if !pause(ctx, latency) {
		return 0, ended(ctx)
	}
	for {
		p.w.mu.Lock()
		down, hangs, changed := p.down, p.hangs, p.w.changed
		life = p.life
		p.w.mu.Unlock()
		switch {
		case down:
			return 0, fmt.Errorf("%w: %s is away", rpcerr.ErrUnavailable, p.name)
		case failing:
			return 0, fmt.Errorf("%w: %s fails", rpcerr.ErrUnavailable, p.name)
		case !hangs:
			return life, nil
		}
		select {
		case <-ctx.Done():
			return 0, ended(ctx)
		case <-changed:
		}
	}
}

func (p *process) answer(ctx context.Context, run *run, method string, req proto.Message) (out proto.Message, err error) {
	if r, ok := req.(*podsyncv1.StopPodRequest); ok {
		defer p.w.stopCalled(run, r)()
	}
	if _, ok := req.(*podsyncv1.ReclaimRequest); ok {
		began := time.Now()
		defer func() { p.w.reclaimCalled(run, began, err) }()
	}
	if _, err := p.reach(ctx, method); err != nil {
		return nil, err
	}
	if run.dead() {
		return nil, ended(ctx)
	}
	return p.handle(ctx, run, method, req)
}

// ended is the error of a call whose caller does not wait any more.
func ended(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("%w: no answer in time", rpcerr.ErrTimeout)
	}
	return status.Error(codes.Canceled, "nobody waits")
}

// pause says whether a time has passed before ctx was done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// draw is a number that follows from the seed and from what is drawn for.
func (w *world) draw(of ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, of)
	x := h.Sum64()
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x >> 17
}
