// Package httperror turns the errors of other services into HTTP answers in the
// kubelet's manner: plain text. It must never hide what the service said.
package httperror

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/polylet/polylet/internal/rpcerr"
)

// retryAfter is what CRI's streaming servers advise when too much is open.
const retryAfter = 60

// Status is the HTTP status of an error from a service's RPC.
func Status(err error) int {
	switch {
	case errors.Is(err, rpcerr.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, rpcerr.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, rpcerr.ErrExhausted):
		return http.StatusTooManyRequests
	case errors.Is(err, rpcerr.ErrUnavailable):
		return http.StatusServiceUnavailable
	case errors.Is(err, rpcerr.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, rpcerr.ErrUnimplemented):
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}

// Error writes err, which a call to the named service gave.
func Error(w http.ResponseWriter, service string, err error) {
	ErrorStatus(w, service, Status(err), err)
}

// ErrorStatus is Error with a status of the caller's choice.
func ErrorStatus(w http.ResponseWriter, service string, status int, err error) {
	message := Message(err)
	switch status {
	case http.StatusServiceUnavailable:
		message = "polylet's " + service + " process does not answer (it is started again by its supervisor; see `polylet status`): " + message
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	Text(w, status, message)
}

// Message is what a service said without the name of the error's class, which
// the HTTP status says already: the kubelet's texts have none.
func Message(err error) string {
	message := err.Error()
	for _, class := range [...]error{rpcerr.ErrNotFound, rpcerr.ErrInvalid, rpcerr.ErrPrecondition, rpcerr.ErrExhausted, rpcerr.ErrInternal} {
		if errors.Is(err, class) {
			message = strings.TrimPrefix(message, class.Error()+": ")
			message = strings.TrimSuffix(message, ": "+class.Error())
		}
	}
	return message
}

// Text writes a plain text answer without a line feed, as the kubelet's are.
func Text(w http.ResponseWriter, status int, message string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A client that went away needs no answer.
	_, _ = w.Write([]byte(message))
}
