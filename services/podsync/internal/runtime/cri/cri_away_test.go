package cri

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestOnlyALostConnectionMeansThatTheRuntimeIsAway(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{asLost(status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /x: connect: connection refused"`)), true},
		{fmt.Errorf("inspect: %w", asLost(status.Error(codes.Unavailable, "error reading from server: EOF"))), true},
		{asLost(status.Error(codes.Unavailable, "failed to pull image: unexpected status 503 Service Unavailable")), false},
		{asLost(status.Error(codes.Unknown, "connection error")), false},
		{asLost(nil), false},
		{status.Error(codes.Unavailable, "connection error: of a driver"), false},
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

// What is lost has the runtime's answer, as anything else has.
func TestALostCallSaysWhatItEndedWith(t *testing.T) {
	runtime := fakecri.New(fakecri.Config{Faults: func(context.Context, string, any) fakecri.Fault {
		return fakecri.Fault{Err: status.Error(codes.Unavailable, "connection error: refused")}
	}})
	conn, err := runtime.Dial(t.Context(), DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = New(Config{}, conn, conn, nil).ListContainers(t.Context(), "")
	if said, ok := status.FromError(err); !IsAway(err) || !IsUnavailable(err) || !ok || said.Message() != "connection error: refused" {
		t.Errorf("%v: away %v", err, IsAway(err))
	}
}
