package event

import (
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
)

// laterSink has an event sent again that the apiserver, or a proxy before it, cannot
// take now. The recorder drops what is answered, whatever the answer, and tries again
// only where there is none: of an outage that a load balancer answers with 503 nobody
// would ever see an event.
type laterSink struct{ record.EventSink }

// Create implements record.EventSink.
func (s laterSink) Create(e *v1.Event) (*v1.Event, error) {
	made, err := s.EventSink.Create(e)
	return made, later(err)
}

// Patch implements record.EventSink.
func (s laterSink) Patch(e *v1.Event, data []byte) (*v1.Event, error) {
	made, err := s.EventSink.Patch(e, data)
	return made, later(err)
}

// later is err as the recorder takes one of a server that does not answer, if it says
// no more than that nobody is there. A 500 is not among them: a webhook that is broken
// for one namespace gives it, and must not hold up the events of others.
func later(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the apiserver takes no events now: %w", err)
	}
	return err
}
