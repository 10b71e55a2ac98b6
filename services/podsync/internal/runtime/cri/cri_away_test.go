package cri

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOnlyALostConnectionMeansThatTheRuntimeIsAway(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /x: connect: connection refused"`), true},
		{fmt.Errorf("inspect: %w", status.Error(codes.Unavailable, "error reading from server: EOF")), true},
		{status.Error(codes.Unavailable, "failed to pull image: unexpected status 503 Service Unavailable"), false},
		{status.Error(codes.Unknown, "connection error"), false},
		{nil, false},
	} {
		if got := IsAway(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

func TestNobodyIsSureOfACallWhoseAnswerWasLost(t *testing.T) {
	for code, want := range map[codes.Code]bool{
		codes.Canceled: true, codes.DeadlineExceeded: true, codes.Unavailable: true, codes.Internal: true, codes.ResourceExhausted: true,
		codes.Unknown: false, codes.NotFound: false, codes.PermissionDenied: false, codes.Unauthenticated: false, codes.InvalidArgument: false,
	} {
		if got := IsUnsure(status.Error(code, "x")); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}
