package peer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/probes/internal/handler"
)

// slow is a podsync that says after a while that the time is over.
type slow struct {
	grpc.ClientConnInterface
	after time.Duration
}

func (s slow) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	select {
	case <-time.After(s.after):
		return status.Error(codes.DeadlineExceeded, "over")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func TestTheEndOfACallIsNotHeldAgainstTheContainer(t *testing.T) {
	const timeout = 3 * time.Second
	for name, c := range map[string]struct {
		after time.Duration
		want  string
	}{
		"the command took too long":             {timeout, "command timed out"},
		"the runtime says so late":              {timeout + grace - 2*lastMoment, "command timed out"},
		"podsync sees the call's end before us": {timeout + grace - time.Millisecond, "podsync did not answer"},
		"we see it first":                       {time.Hour, "podsync did not answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, _, err := NewCommander(slow{after: c.after}).RunCommand(t.Context(), handler.Command{Timeout: timeout})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, handler.ErrCommandTimeout) != (c.want == "command timed out") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
