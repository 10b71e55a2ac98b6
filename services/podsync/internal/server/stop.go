package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Stopper ends pods for a reason of the node's own.
type Stopper interface {
	// Stop returns when a crash does not lose the stop; already: the pod was being
	// stopped before. Its error is a *StopError when it is not stopped as it should be.
	Stop(ctx context.Context, uid types.UID, stop podstate.Stop, annotations map[string]string) (already bool, err error)
	// Endings are the pods that are ended so and of which something is left.
	Endings() []podstate.Ending
}

// StopError is why a pod is not stopped; its text is for whoever asked.
type StopError struct {
	Err error
	// Gone: it is not there, or has ended. Never: the node does not stop it.
	Gone, Never bool
}

// Error implements error.
func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap implements error.
func (e *StopError) Unwrap() error { return e.Err }

// Bounds of what a pod is told to end with, in bytes: what the apiserver takes in a
// condition's reason and message.
const (
	mostReason  = 1024
	mostMessage = 32768
)

// StopPod implements PodSyncService.
func (s *Server) StopPod(ctx context.Context, req *podsyncv1.StopPodRequest) (*podsyncv1.StopPodResponse, error) {
	if s.deps.Stops == nil {
		return nil, fmt.Errorf("%w: this podsync stops no pods for others", rpcerr.ErrUnimplemented)
	}
	if err := validStop(req); err != nil {
		return nil, fmt.Errorf("%w: stop a pod: %w", rpcerr.ErrInvalid, err)
	}
	pod, err := s.find(req.GetPod())
	if errors.Is(err, rpcerr.ErrPrecondition) { // which says of a pod that it is never stopped
		return nil, fmt.Errorf("%w: %s", rpcerr.ErrUnavailable, err.Error())
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // This process hung, and who has asked may have chosen another.
		return nil, fmt.Errorf("%w: stop pod %s/%s: whoever has asked waits no longer", rpcerr.ErrUnavailable, pod.Pod.Namespace, pod.Pod.Name)
	}
	already, err := s.deps.Stops.Stop(ctx, pod.Pod.UID, stopOf(req), req.GetEventAnnotations())
	if err != nil {
		class := rpcerr.ErrInternal
		why := (*StopError)(nil)
		switch {
		case !errors.As(err, &why):
		case why.Gone:
			class = rpcerr.ErrNotFound
		case why.Never:
			class = rpcerr.ErrPrecondition
		}
		return nil, fmt.Errorf("%w: stop pod %s/%s: %w", class, pod.Pod.Namespace, pod.Pod.Name, err)
	}
	return &podsyncv1.StopPodResponse{Already: already}, nil
}

// validStop says what of a request can never be done.
func validStop(req *podsyncv1.StopPodRequest) error {
	switch {
	case req.GetPod().GetUid() == "":
		return errors.New("the pod's UID must be given: another pod may have its name by now")
	case req.GetReason() == "":
		return errors.New("the reason must be given")
	case max(len(req.GetReason()), len(req.GetDisruptionReason()), len(req.GetSignal())) > mostReason:
		return fmt.Errorf("a reason, and a signal, has %d bytes at most", mostReason)
	case len(req.GetMessage()) > mostMessage || len(req.GetDisruptionMessage()) > mostMessage:
		return fmt.Errorf("a message has %d bytes at most", mostMessage)
	case req.GetDisruptionReason() == "" && req.GetDisruptionMessage() != "":
		return errors.New("a condition with a message needs a reason")
	case req.GetGrace() != nil && (req.GetGrace().CheckValid() != nil || req.GetGrace().AsDuration() < 0):
		return fmt.Errorf("the grace period is %s: it may not be less than 0", req.GetGrace().AsDuration())
	}
	return validation.ValidateAnnotations(req.GetEventAnnotations(), field.NewPath("event_annotations")).ToAggregate()
}

// endings are the pods that the node ends for a reason of its own.
func (s *Server) endings() []*podsyncv1.PodEnding {
	var out []*podsyncv1.PodEnding
	for _, e := range s.deps.Stops.Endings() {
		if e.Name == "" {
			e.Namespace, e.Name = s.nameInRuntime(e.UID)
		}
		p := &podsyncv1.PodEnding{
			Uid: string(e.UID), Namespace: e.Namespace, Name: e.Name, Reason: e.Stop.Reason, Message: e.Stop.Message, Signal: e.Stop.Signal,
			Since: timestamppb.New(e.Since), Ended: e.Ended,
		}
		if g := e.Stop.GraceSeconds; g != nil {
			p.Grace = durationpb.New(time.Duration(*g) * time.Second)
		}
		out = append(out, p)
	}
	return out
}

// nameInRuntime is how the runtime calls a pod that no source has any more; empty when
// nothing of it runs.
func (s *Server) nameInRuntime(uid types.UID) (namespace, name string) {
	for _, running := range s.deps.Table.RunningPods() {
		if running.UID == uid {
			return running.Namespace, running.Name
		}
	}
	return "", ""
}

// stopOf is a request in the words of those who stop pods.
func stopOf(req *podsyncv1.StopPodRequest) podstate.Stop {
	stop := podstate.Stop{Reason: req.GetReason(), Message: req.GetMessage(), Signal: req.GetSignal(), Shutdown: req.GetShutdown()}
	if g := req.GetGrace(); g != nil {
		seconds := int64((g.AsDuration() + time.Second - 1) / time.Second) // a second that has begun is given
		stop.GraceSeconds = &seconds
	}
	if why := req.GetDisruptionReason(); why != "" {
		stop.Condition = &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: why, Message: req.GetDisruptionMessage()}
	}
	return stop
}
