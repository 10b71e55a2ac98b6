package rpc

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestACallIsBrokenByItsConnectionAloneAndNotByWhatTheOtherEndSays(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /x: connect: connection refused"`), true},
		{fmt.Errorf("inspect: %w", status.Error(codes.Unavailable, "error reading from server: EOF")), true},
		{status.Error(codes.Unavailable, "failed to pull image: unexpected status 503 Service Unavailable"), false},
		{status.Error(codes.Unknown, "connection error"), false},
		{nil, false},
	} {
		if got := Broken(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
