// Package reason gives an error the one word that Kubernetes users look for, which
// stands as the reason of a waiting container or of an event: ErrImagePull,
// CreateContainerConfigError, FailedMount.
//
// It owns how the word travels with the error; it must never choose one, nor
// change what the error says.
package reason

import "errors"

type withReason struct {
	error
	reason string
}

// Unwrap returns the error without its reason.
func (e *withReason) Unwrap() error { return e.error }

// New is err with a reason. One that it, or an error within it, has already stays:
// who was nearest to the failure knows best.
func New(reason string, err error) error {
	if err == nil || Of(err) != "" {
		return err
	}
	return &withReason{err, reason}
}

// Of is the reason that an error, or one within it, was given; empty for none.
func Of(err error) string {
	var e *withReason
	if errors.As(err, &e) {
		return e.reason
	}
	return ""
}
