// Package reason gives an error the one word that Kubernetes users look for, which
// stands as the reason of a waiting container or of an event: ErrImagePull,
// CreateContainerConfigError, FailedMount.
//
// It owns how the word travels with the error, likewise when it is worth to try again,
// and when two errors say the same; it must never choose either, nor change what an
// error says.
package reason

import (
	"errors"
	"time"
)

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

type later struct {
	error
	at time.Time
}

// Unwrap returns the error without its time.
func (e *later) Unwrap() error { return e.error }

// Later is err with when it is to be tried again.
func Later(at time.Time, err error) error {
	if err == nil {
		return nil
	}
	return &later{err, at}
}

// RetryAt is when an error, or one within it, says that it is to be tried again; zero
// where none does.
func RetryAt(err error) time.Time {
	var e *later
	if errors.As(err, &e) {
		return e.at
	}
	return time.Time{}
}

// shortestID is how many hexadecimal digits make an id: names of temporary files have
// eight, those of sandboxes and of exec sessions 64.
const shortestID = 8

// Alike says whether two errors' texts are the same but for ids. A runtime names the
// sandbox that it could not make, and that is a new one at each try.
func Alike(a, b string) bool {
	for a != b {
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		for i > 0 && wordByte(a[i-1]) {
			i-- // where the word begins that differs
		}
		inA, inB := id(a[i:]), id(b[i:])
		if inA == 0 || inB == 0 {
			return false
		}
		a, b = a[i+inA:], b[i+inB:]
	}
	return true
}

// id is how long the id is that text begins with; 0 when it begins with none.
func id(text string) int {
	n, digits := 0, 0
	for ; n < len(text) && wordByte(text[n]); n++ {
		switch c := text[n]; {
		case '0' <= c && c <= '9':
			digits++
		case c < 'a' || c > 'f':
			return 0
		}
	}
	if n < shortestID || digits == 0 {
		return 0
	}
	return n
}

// wordByte is a byte of a word. All bytes of letters beyond ASCII are.
func wordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
