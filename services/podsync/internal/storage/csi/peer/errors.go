package peer

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/rpc"
)

// Final says whether an operation that failed is over: after the other errors it may go
// on, or a previous one may, and the volume may be there.
func Final(err error) bool {
	said, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch said.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// Lost says whether nobody was there to answer, as far as can be told; broken: by the connection,
// whose words are no driver's. Its state may not have changed yet.
func Lost(err error) (lost, broken bool) {
	return status.Code(err) == codes.Unavailable, rpc.Broken(err)
}

// InUse says whether a volume was not grown because it is used.
// Source: https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeexpandvolume-errors
func InUse(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// Infeasible says whether a volume was not grown because it cannot be, however often it is
// tried.
func Infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}

// Exhausted says whether the code that an attachment's error has, if it has one, says that
// the driver lacks what it takes.
func Exhausted(code *int32) bool {
	return code != nil && codes.Code(*code) == codes.ResourceExhausted //nolint:gosec // A code is small.
}
