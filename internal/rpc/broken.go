package rpc

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Broken says whether a call failed by its connection, so that it may not have reached who was
// asked. gRPC has the same code (Unavailable) for what the other end calls so itself, such as a
// registry that is away; the words tell them apart.
func Broken(err error) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	for _, words := range []string{"connection error", "error reading from server", "transport is closing", "the connection is draining", "client connection is closing"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
