package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEveryClassSurvivesTheHop(t *testing.T) {
	for _, c := range classes {
		t.Run(c.reason, func(t *testing.T) {
			err := fmt.Errorf("open pod %q: %w: create it first", "a/b", c.err)
			st := ToStatus(err)
			if st.Code() != c.code {
				t.Fatalf("code %v, want %v", st.Code(), c.code)
			}
			info, ok := st.Details()[0].(*errdetails.ErrorInfo)
			if !ok || info.GetReason() != c.reason || info.GetDomain() != Domain {
				t.Fatalf("details %v", st.Details())
			}
			back := FromStatus(st.Err())
			if !errors.Is(back, c.err) {
				t.Fatalf("%v is not %v", back, c.err)
			}
			if back.Error() != err.Error() {
				t.Fatalf("message %q, want %q", back, err)
			}
			if status.Code(back) != c.code {
				t.Fatalf("status.Code = %v", status.Code(back))
			}
			if again := ToStatus(fmt.Errorf("relay: %w", back)); again.Code() != c.code || !strings.HasPrefix(again.Message(), "relay: open pod") {
				t.Fatalf("second hop: %v", again)
			}
		})
	}
}

func TestErrorsWithoutAClass(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code codes.Code
	}{
		{"cancelled", fmt.Errorf("read: %w", context.Canceled), codes.Canceled},
		{"deadline", fmt.Errorf("read: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{"plain", errors.New("boom"), codes.Unknown},
		{"status", fmt.Errorf("x: %w", status.Error(codes.DataLoss, "gone")), codes.DataLoss},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ToStatus(tc.err).Code(); got != tc.code {
				t.Fatalf("code %v, want %v", got, tc.code)
			}
		})
	}
	if !errors.Is(FromStatus(status.Error(codes.Canceled, "x")), context.Canceled) {
		t.Error("CANCELLED is not context.Canceled")
	}
	if !errors.Is(FromStatus(status.Error(codes.DeadlineExceeded, "x")), context.DeadlineExceeded) {
		t.Error("DEADLINE_EXCEEDED is not context.DeadlineExceeded")
	}
}

func TestNilAndForeignErrorsPassThrough(t *testing.T) {
	if ToStatus(nil) != nil || FromStatus(nil) != nil {
		t.Error("nil must stay nil")
	}
	if FromStatus(io.EOF) != io.EOF {
		t.Error("io.EOF must stay io.EOF")
	}
}
