// Package rpcerr owns the error classes that survive an RPC hop and their
// mapping to gRPC codes with google.rpc.ErrorInfo. Handlers return plain errors
// that wrap a class; clients get errors for which errors.Is works. It must
// never hide a message: what the server said is what the client reads.
package rpcerr

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the ErrorInfo domain of all errors made here.
const Domain = "polylet"

// The error classes. Wrap them with %w.
var (
	// ErrNotFound: the named thing is not here.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable: a dependency is away; trying again may help.
	ErrUnavailable = errors.New("unavailable")
	// ErrPrecondition: the thing is not in the state that this needs.
	ErrPrecondition = errors.New("precondition failed")
	// ErrForbidden: the caller may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrUnauthenticated: it is not known who calls.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrExhausted: a limit is reached.
	ErrExhausted = errors.New("exhausted")
	// ErrTimeout: it took longer than allowed.
	ErrTimeout = errors.New("timed out")
	// ErrExists: the thing is there already.
	ErrExists = errors.New("already exists")
	// ErrConflict: another change came between; read again and retry.
	ErrConflict = errors.New("conflict")
	// ErrUnimplemented: this build or runtime cannot do it.
	ErrUnimplemented = errors.New("not implemented")
	// ErrInternal: a fault of the server itself.
	ErrInternal = errors.New("internal error")
)

type class struct {
	err    error
	code   codes.Code
	reason string
}

// classes is ordered: the first that matches wins in either direction.
var classes = [...]class{
	{ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{ErrInvalid, codes.InvalidArgument, "INVALID"},
	{ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
	{ErrPrecondition, codes.FailedPrecondition, "PRECONDITION"},
	{ErrForbidden, codes.PermissionDenied, "FORBIDDEN"},
	{ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{ErrExhausted, codes.ResourceExhausted, "EXHAUSTED"},
	{ErrTimeout, codes.DeadlineExceeded, "TIMEOUT"},
	{ErrExists, codes.AlreadyExists, "EXISTS"},
	{ErrConflict, codes.Aborted, "CONFLICT"},
	{ErrUnimplemented, codes.Unimplemented, "UNIMPLEMENTED"},
	{ErrInternal, codes.Internal, "INTERNAL"},
}

// ToStatus turns a handler's error into a gRPC status: nil stays nil; an error
// that is or wraps a status keeps its code and details; a class gives its code
// and an ErrorInfo; a context's error gives CANCELLED or DEADLINE_EXCEEDED;
// anything else is UNKNOWN. The whole text of err is the message.
func ToStatus(err error) *status.Status {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return build(c.code, err.Error(), c.reason)
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.New(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return build(codes.DeadlineExceeded, err.Error(), "TIMEOUT")
	}
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.New(codes.Unknown, err.Error())
}

func build(code codes.Code, message, reason string) *status.Status {
	st := status.New(code, message)
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain}); err == nil {
		return detailed
	}
	return st
}

// Error is what a client gets from a failed call. errors.Is finds the class;
// status.FromError and status.Code find the status.
type Error struct {
	st    *status.Status
	class error
}

// Error is the server's message, without gRPC's decoration.
func (e *Error) Error() string { return e.st.Message() }

// Unwrap gives the class, or nil.
func (e *Error) Unwrap() error { return e.class }

// GRPCStatus gives the status as it came.
func (e *Error) GRPCStatus() *status.Status { return e.st }

// Is makes CANCELLED and DEADLINE_EXCEEDED match the context's errors.
func (e *Error) Is(target error) bool {
	switch e.st.Code() {
	case codes.Canceled:
		return target == context.Canceled
	case codes.DeadlineExceeded:
		return target == context.DeadlineExceeded
	default:
		return false
	}
}

// FromStatus turns the error of a client call into an *Error. nil stays nil, an
// *Error stays itself, and an error without a status (io.EOF) is returned as it is.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	out := &Error{st: st}
	for _, c := range classes {
		if c.code == st.Code() {
			out.class = c.err
			break
		}
	}
	return out
}
