package rpc

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// ClientTimeout is what a unary call gets when its caller set no deadline.
const ClientTimeout = 30 * time.Second

// Dial returns a connection to the Unix socket at path. It is lazy: nothing is
// opened before the first call, and a server that is away is tried again after
// 50 ms, then ever more slowly up to 1 s. Failed calls give errors of rpcerr's
// classes. servers are the users, beside root and this process's own, that may
// have opened the socket; another's is not spoken to.
func Dial(path string, servers ...uint32) (*grpc.ClientConn, error) {
	return DialServer(path, func(uid uint32) bool { return slices.Contains(servers, uid) })
}

// DialServer is Dial with a question instead of a list. inner is what happens
// around a unary call before it is sent.
func DialServer(path string, serves func(uid uint32) bool, inner ...grpc.UnaryClientInterceptor) (*grpc.ClientConn, error) {
	absolute, err := filepath.Abs(path) // gRPC takes no other
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", path, err)
	}
	conn, err := grpc.NewClient("unix://"+absolute, append(ClientOptions(), grpc.WithTransportCredentials(uds.ServedBy(serves)), grpc.WithChainUnaryInterceptor(inner...))...)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", path, err)
	}
	return conn, nil
}

// What a server may send before it is read. gRPC would let a window grow up to
// 16 MiB with what the socket once carried: a client that stops to read would
// keep as much for each of its streams.
const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
)

// ClientOptions are the house's dial options without credentials, for tests
// over bufconn.
func ClientOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxRequestBytes)),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithReadBufferSize(16 << 10),
		grpc.WithWriteBufferSize(16 << 10),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(unaryClient),
		grpc.WithChainStreamInterceptor(streamClient),
		grpc.WithUserAgent("polylet/" + buildinfo.Version),
	}
}

func introduce(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, protocolKey, strconv.FormatUint(uint64(buildinfo.Protocol), 10))
}

func unaryClient(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ClientTimeout)
		defer cancel()
	}
	return rpcerr.FromStatus(invoke(introduce(ctx), method, req, reply, conn, opts...))
}

func streamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(introduce(ctx), desc, conn, method, opts...)
	if err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	return clientStream{s}, nil
}

// clientStream gives errors of rpcerr's classes; io.EOF stays io.EOF.
type clientStream struct{ grpc.ClientStream }

func (s clientStream) RecvMsg(m any) error { return rpcerr.FromStatus(s.ClientStream.RecvMsg(m)) }

func (s clientStream) SendMsg(m any) error { return rpcerr.FromStatus(s.ClientStream.SendMsg(m)) }
