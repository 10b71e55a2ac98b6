package peer

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAnErrorAfterWhichADriverMayGoOnIsNotFinal(t *testing.T) {
	mayGoOn := map[codes.Code]bool{
		codes.Canceled: true, codes.DeadlineExceeded: true, codes.Unavailable: true, codes.ResourceExhausted: true, codes.Aborted: true,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := Final(fmt.Errorf("publish: %w", status.Error(code, "no"))); got == mayGoOn[code] {
			t.Errorf("%s: final %v", code, got)
		}
	}
	if Final(errors.New("who knows")) {
		t.Error("an error that is none of a driver's is final")
	}
}

func TestWhatCannotBeGrownIsToldFromWhatIsUsed(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		err := status.Error(code, "no")
		never := code == codes.InvalidArgument || code == codes.OutOfRange || code == codes.NotFound
		if InUse(err) != (code == codes.FailedPrecondition) || Infeasible(err) != never {
			t.Errorf("%s: in use %v, infeasible %v", code, InUse(err), Infeasible(err))
		}
	}
	full, other := int32(codes.ResourceExhausted), int32(codes.Internal)
	if !Exhausted(&full) || Exhausted(&other) || Exhausted(nil) {
		t.Error("an attachment's code is not read")
	}
}
