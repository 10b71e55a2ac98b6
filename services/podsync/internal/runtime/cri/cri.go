// Package cri is podsync's way to the container runtime: the CRI v1 calls with
// a deadline each, error classes that the runtimes agree on, and the names of
// the labels and annotations by which sandboxes and containers are recognised.
//
// It owns how a call is made; it must never decide which call to make, never
// retry, and never keep what an answer said.
package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// maxMessage bounds an answer: lists with many containers, and the output of ExecSync.
const maxMessage = 64 << 20

// Windows of HTTP/2, in bytes.
const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
)

// Config of a Client.
type Config struct {
	// RequestTimeout bounds calls that change something (runtimeRequestTimeout);
	// 2 minutes when zero. Making a sandbox may take twice as long, stopping a
	// container the grace period more.
	RequestTimeout time.Duration
	// LookTimeout bounds calls that only look; 10 s when zero. While the runtime
	// is too slow for that, it grows up to RequestTimeout; see lookTimeout. Lists of
	// everything have RequestTimeout from the start.
	LookTimeout time.Duration
}

// Client makes calls to a runtime. Safe for concurrent use.
type Client struct {
	cfg     Config
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	metrics *Metrics
	looks   *lookTimeout
	slots   *limiter.Limiter // among the looks
	// conn is runtime's connection; answers are the places to read outputs of
	// commands from it.
	conn    grpc.ClientConnInterface
	answers chan struct{}
}

// New returns a Client; it makes no call. images may be runtime when one socket
// serves both. metrics may be nil.
func New(cfg Config, runtime, images grpc.ClientConnInterface, metrics *Metrics) *Client {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 2 * time.Minute
	}
	if cfg.LookTimeout <= 0 {
		cfg.LookTimeout = 10 * time.Second
	}
	return &Client{
		cfg:     cfg,
		runtime: runtimeapi.NewRuntimeServiceClient(runtime),
		images:  runtimeapi.NewImageServiceClient(images),
		metrics: metrics,
		looks:   &lookTimeout{least: cfg.LookTimeout},
		conn:    runtime,
		answers: make(chan struct{}, parallelAnswers),
		slots:   limiter.New(limiter.Config{Least: parallelLooks, Initial: parallelLooks, Most: parallelLooks, HungAfter: lookSlot, MostHung: parallelLooks}),
	}
}

// call runs one unary call with its deadline and counts it. Without a timeout
// ctx alone bounds it.
func call[Req, Resp any](ctx context.Context, c *Client, op string, timeout time.Duration, req Req,
	do func(context.Context, Req, ...grpc.CallOption) (Resp, error),
) (Resp, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	began := time.Now()
	resp, err := do(ctx, req, grpc.MaxCallRecvMsgSize(maxMessage))
	c.metrics.observe(op, began, err)
	return resp, asLost(err)
}

// parallelLooks is how many looks the runtime gets at once: an overloaded one
// would answer none in time if it were asked about every pod at the same time.
// lookSlot is when one that hangs no longer counts, unless as many hang already.
const (
	parallelLooks = 16
	lookSlot      = time.Second
)

// look runs one call that only looks, with the deadline that experience says.
// What says whether the runtime is well waits for no other.
func look[Req, Resp any](ctx context.Context, c *Client, op string, req Req,
	do func(context.Context, Req, ...grpc.CallOption) (Resp, error),
) (Resp, error) {
	if op != opVersion && op != opStatus {
		release, err := c.slots.Acquire(ctx, limiter.Order{})
		if err != nil {
			var none Resp
			return none, status.FromContextError(err).Err()
		}
		defer release()
	}
	asked, began := c.looks.of(op), time.Now()
	if ofAll(req) {
		// Nothing is known without it, and a runtime under load answers late.
		asked = c.cfg.RequestTimeout
	}
	resp, err := call(ctx, c, op, asked, req, do)
	took := time.Since(began)
	givenUp := ctx.Err() == nil && status.Code(err) == codes.DeadlineExceeded && took >= asked
	if (givenUp || err == nil) && !ofAll(req) {
		c.looks.ended(op, asked, took, givenUp, c.mostLookTimeout(op))
	}
	return resp, err
}

// ofAll says whether a request is for the list of everything.
func ofAll(req any) bool {
	switch r := req.(type) {
	case *runtimeapi.ListPodSandboxRequest:
		return r.Filter == nil
	case *runtimeapi.ListContainersRequest:
		return r.Filter == nil
	}
	return false
}

// mostLookTimeout bounds how long a look is waited for. What says whether the
// runtime is well must be asked again soon after it was not.
func (c *Client) mostLookTimeout(op string) time.Duration {
	if op == opVersion || op == opStatus {
		return min(4*c.cfg.LookTimeout, c.cfg.RequestTimeout)
	}
	return c.cfg.RequestTimeout
}

// The operations that say whether the runtime is well, as metrics name them.
const opVersion, opStatus = "version", "status"

// Code is what the runtime answered a call with, in gRPC's words.
func Code(err error) string { return status.Code(err).String() }

// IsNotFound tells that the thing is not there.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsUnimplemented tells that the runtime does not know the call.
func IsUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// IsUnavailable tells that the runtime is not there to answer.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// IsTooLarge tells that the answer did not fit into one message, of the runtime's
// bound or of ours.
func IsTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// IsUnsure tells that a call may have been carried out though it failed: nobody
// waited for its end, the connection broke, or the answer was lost on its way. A
// runtime may use some of these codes itself; where that cannot be told apart,
// nobody is sure.
func IsUnsure(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Aborted, codes.DataLoss:
		return true
	}
	return false
}

// Words is what the runtime said of an error. That gRPC does not know it tells nobody anything.
func Words(err error) string {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unknown {
		return s.Message()
	}
	return err.Error()
}

// IsRefused says whether the runtime says that what it is asked for cannot be done as
// things stand: containerd, of a container whose task it cannot delete.
func IsRefused(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// lost is an error of the connection to the runtime.
type lost struct{ error }

func (l lost) Unwrap() error { return l.error }

// GRPCStatus is what the call ended with.
func (l lost) GRPCStatus() *status.Status { return status.Convert(l.error) }

// asLost marks an error of the connection.
func asLost(err error) error {
	if rpc.Broken(err) {
		return lost{err}
	}
	return err
}

// IsAway tells that the connection to the runtime failed, so that the call may not have reached
// it: that of a driver is another's.
func IsAway(err error) bool { return errors.As(err, new(lost)) }

// DialOptions are for connections to a runtime: no encryption on its socket, and
// a runtime that comes back is found within a second.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: .2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// How much of an answer may come before it is read. By itself gRPC would
		// let it grow up to 16 MiB for each call.
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
	}
}

// Dial returns a connection to a runtime's endpoint, e.g.
// "unix:///run/containerd/containerd.sock" or a plain path. It does not connect.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	if !strings.HasPrefix(endpoint, "unix://") {
		return nil, fmt.Errorf("container runtime endpoint %q: only unix:// sockets are supported; set containerRuntimeEndpoint to one", endpoint)
	}
	conn, err := grpc.NewClient(endpoint, DialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return conn, nil
}
