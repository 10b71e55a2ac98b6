package rpc

import "google.golang.org/grpc"

// Bounded are the options of a connection with a server that is none of ours, such as a
// plugin or a container: limit bounds, in bytes, the header and the message of an answer,
// and what comes without being asked for.
func Bounded(limit int32) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(uint32(limit)), //nolint:gosec // It is no negative number.
		grpc.WithStaticStreamWindowSize(limit),
		grpc.WithStaticConnWindowSize(limit),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(int(limit))),
	}
}
