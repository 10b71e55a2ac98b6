package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// protocolKey is the metadata in which a polylet client names its protocol
// release. Other clients (grpcurl) send none and are served.
const protocolKey = "polylet-protocol"

// policy is what happens around every call.
type policy struct {
	cfg      ServerConfig
	refusals refusals
	calls    calls
	// peerOf says who calls; uds.PeerFrom but in tests.
	peerOf func(context.Context) (uds.Peer, bool)
}

func (p *policy) admit(ctx context.Context, method string) error {
	if err := checkProtocol(ctx); err != nil {
		return err
	}
	return p.permit(ctx, method)
}

// tap refuses a call before anything of its message is read: who may not call
// would else have the server hold as much as its connections let in. A method
// without an entry is refused behind it, or not served at all.
func (p *policy) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if _, ok := p.cfg.Access[info.FullMethodName]; ok {
		if err := p.permit(ctx, info.FullMethodName); err != nil {
			return nil, rpcerr.ToStatus(err).Err()
		}
	}
	if peer, ok := p.peerOf(ctx); ok {
		end, err := p.calls.begin(peer, p.most(peer))
		if err != nil {
			return nil, rpcerr.ToStatus(err).Err()
		}
		context.AfterFunc(ctx, end) // gRPC ends it with the call
	}
	return ctx, nil
}

const (
	// callsOfAPerson is how many calls somebody who is none of the services may have
	// under way at once: each may hold a message of MaxRequestBytes.
	callsOfAPerson = 64
	// callsOfAContainer is how many one container may, root in it included, and
	// callsOfPods how many all of them together, where pods may call at all.
	callsOfAContainer, callsOfPods = 16, 256
)

// most is how many calls a caller may have under way at once, on all connections.
func (p *policy) most(caller uds.Peer) int {
	switch uid := caller.UID; {
	case caller.Pod != "":
		return callsOfAContainer
	case uid == 0 || uid == uint32(os.Geteuid()):
		return math.MaxInt
	case p.cfg.Users.nameOf(uid) != "":
		return MaxStreams
	}
	return callsOfAPerson
}

// caller is who has calls under way: a user of the host, or a container, whatever
// number its process has.
type caller struct {
	uid uint32
	pod string
}

// calls counts those that are under way. The zero value is ready.
type calls struct {
	mu   sync.Mutex
	of   map[caller]int
	pods int // those of all containers
}

func (c *calls) begin(peer uds.Peer, most int) (end func(), err error) {
	who, pods := caller{uid: peer.UID}, 0
	if peer.Pod != "" {
		who, pods = caller{pod: peer.Pod}, 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.of[who] >= most && pods == 0:
		return nil, fmt.Errorf("%w: uid %d has %d calls under way, no more are let in: wait for some to end", rpcerr.ErrExhausted, peer.UID, most)
	case c.of[who] >= most:
		return nil, fmt.Errorf("%w: this container has %d calls under way, no more are let in: wait for some to end", rpcerr.ErrExhausted, most)
	case c.pods+pods > callsOfPods:
		return nil, fmt.Errorf("%w: pods have %d calls under way, no more are let in: wait for some to end", rpcerr.ErrExhausted, callsOfPods)
	}
	if c.of == nil {
		c.of = map[caller]int{}
	}
	c.of[who]++
	c.pods += pods
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pods -= pods
		if c.of[who]--; c.of[who] == 0 {
			delete(c.of, who)
		}
	}, nil
}

func (p *policy) permit(ctx context.Context, method string) error {
	if p.cfg.Insecure || p.cfg.Public {
		return nil
	}
	// A method without an entry is root's alone.
	access := p.cfg.Access[method]
	peer, ok := p.peerOf(ctx)
	if !ok {
		return fmt.Errorf("%w: %s: the caller is not known", rpcerr.ErrForbidden, method)
	}
	if !access.allows(p.cfg.Users, peer) {
		err := access.refusal(p.cfg.Users, method, peer)
		if speak, before := p.refusals.next(peer, method, time.Now()); speak {
			p.cfg.Log.Info("Call refused", "method", method, "user", peer.UID, "pid", peer.PID, "cgroup", peer.Pod,
				"allowed", access.String(), "refusedUnsaid", before)
		}
		return err
	}
	return nil
}

func checkProtocol(ctx context.Context) error {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return nil
	}
	values := md.Get(protocolKey)
	if len(values) == 0 {
		return nil
	}
	release, err := strconv.ParseUint(values[0], 10, 32)
	if err != nil {
		return fmt.Errorf("%w: metadata %s is %q, not a number", rpcerr.ErrInvalid, protocolKey, values[0])
	}
	if err := buildinfo.Compatible(uint32(release)); err != nil {
		return fmt.Errorf("%w: %w", rpcerr.ErrPrecondition, err)
	}
	return nil
}

func (p *policy) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	defer func() {
		err = p.finish(recover(), info.FullMethod, err)
		if took := time.Since(start); took > SlowAfter {
			p.cfg.Log.Info("Slow call", "method", info.FullMethod, "took", took.Round(time.Millisecond).String(), "failed", err != nil)
		}
	}()
	if err := p.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	ctx = klog.NewContext(ctx, p.cfg.Log)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	return handler(ctx, req)
}

func (p *policy) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { err = p.finish(recover(), info.FullMethod, err) }()
	if err := p.admit(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	stop := context.AfterFunc(p.cfg.Stopping, func() { cancel(errStopping) })
	defer stop()
	err = handler(srv, &serverStream{ServerStream: ss, ctx: klog.NewContext(ctx, p.cfg.Log)})
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}

var errStopping = fmt.Errorf("%w: the process is stopping; connect again", rpcerr.ErrUnavailable)

// finish turns a panic and any error into a status.
func (p *policy) finish(panicked any, method string, err error) error {
	if panicked != nil {
		p.cfg.Log.Error(fmt.Errorf("panic: %v", panicked), "Handler panicked; the call failed, the process goes on",
			"method", method, "stack", string(debug.Stack()))
		err = fmt.Errorf("%w: %s panicked: %v", rpcerr.ErrInternal, method, panicked)
	}
	return rpcerr.ToStatus(err).Err()
}

// serverStream is a stream whose context ends when the process stops.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }
