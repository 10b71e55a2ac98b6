package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// protocolKey is the metadata in which a polylet client names its protocol
// release. Other clients (grpcurl) send none and are served.
const protocolKey = "polylet-protocol"

// policy is what happens around every call.
type policy struct{ cfg ServerConfig }

func (p *policy) admit(ctx context.Context, method string) error {
	if err := checkProtocol(ctx); err != nil {
		return err
	}
	access, mutating := p.cfg.Mutating[method]
	if !mutating || p.cfg.Insecure {
		return nil
	}
	peer, ok := uds.PeerFrom(ctx)
	if !ok {
		return fmt.Errorf("%w: %s changes something and the caller is not known", rpcerr.ErrForbidden, method)
	}
	if err := access.check(method, peer); err != nil {
		p.cfg.Log.Info("Call refused", "method", method, "uid", peer.UID, "pid", peer.PID, "allowed", access.String())
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
