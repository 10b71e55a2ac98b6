package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
)

// HoldExec implements PodSyncService.
func (s *Server) HoldExec(stream podsyncv1.PodSyncService_HoldExecServer) error {
	if s.deps.Sessions == nil {
		return s.UnimplementedPodSyncServiceServer.HoldExec(stream)
	}
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	hold, resp, err := s.hold(stream.Context(), req)
	if hold == nil {
		return err
	}
	// Of one that is resumed only the container is known.
	whose := "container " + resp.GetContainerId()
	if name := req.GetOpen().GetPod().GetNamespace(); name != "" {
		whose = "namespace " + name
	}
	// Who does not get the answer has left before the command could start.
	over := exec{err: stream.Send(resp)}
	if over.err == nil {
		over = s.follow(stream)
	}
	switch {
	case over.stopping:
		hold.End()
		return over.err
	case !over.left && over.err == nil:
		hold.End()
		return nil
	}
	return s.endLeft(stream, hold, over, whose, resp.GetContainerId())
}

// endLeft ends the command of a session that was left or broke, though nobody may wait for
// it.
func (s *Server) endLeft(stream podsyncv1.PodSyncService_HoldExecServer, hold *execreaper.Hold, over exec, whose, containerID string) error {
	ctx, settled := s.leaving.begin(context.WithoutCancel(stream.Context()), whose)
	defer settled()
	hold.Left(ctx)
	if over.err == nil {
		over.err = stream.Send(&podsyncv1.HoldExecResponse{})
	}
	err := hold.Settle(ctx)
	if errors.Is(context.Cause(ctx), errGivenUp) {
		return nil // not to be told to another podsync
	}
	if err != nil && over.err != nil {
		klog.FromContext(stream.Context()).Error(err, "The command of a session that broke may be left in its container",
			"containerID", containerID, "program", hold.Program())
	}
	if errors.Is(err, execreaper.ErrStopped) {
		// The parts may have been told of the stop before the streams were: the caller is
		// to resume all the same.
		return fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	return err
}

// hold begins or goes on; no hold and no error: there is nothing to do.
func (s *Server) hold(ctx context.Context, req *podsyncv1.HoldExecRequest) (*execreaper.Hold, *podsyncv1.HoldExecResponse, error) {
	if open := req.GetOpen(); open != nil {
		id, url, err := s.openExec(ctx, open)
		if err != nil {
			return nil, nil, err
		}
		h := s.deps.Sessions.Begin(id, open.GetCommand())
		return h, &podsyncv1.HoldExecResponse{Url: url, ContainerId: id, BeganTicks: h.Began()}, nil
	}
	r := req.GetResume()
	if r.GetContainerId() == "" || len(r.GetCommand()) == 0 {
		return nil, nil, fmt.Errorf("%w: the first message must open a session, or resume one with its container and command", rpcerr.ErrInvalid)
	}
	// Whatever else has such a cgroup is none of the caller's business.
	runs, err := s.deps.ContainerRuns(ctx, r.GetContainerId())
	if err != nil || !runs {
		return nil, nil, err
	}
	h := s.deps.Sessions.Resume(r.GetContainerId(), r.GetCommand(), r.GetBeganTicks())
	return h, &podsyncv1.HoldExecResponse{ContainerId: r.GetContainerId(), BeganTicks: h.Began()}, nil
}

// exec is how a session was over: with a last word, or with an error.
type exec struct {
	left     bool
	stopping bool
	err      error
}

// follow waits until the session is over or podsync stops.
func (s *Server) follow(stream podsyncv1.PodSyncService_HoldExecServer) exec {
	last := make(chan exec, 1)
	go func() {
		req, err := stream.Recv()
		last <- exec{left: req.GetOver().GetClientLeft(), err: err}
	}()
	var over exec
	select {
	case over = <-last:
	case <-stream.Context().Done():
		over.err = stream.Context().Err()
	}
	// A stream that podsync itself ends says nothing about the client.
	over.stopping = over.err != nil && errors.Is(context.Cause(stream.Context()), rpcerr.ErrUnavailable)
	return over
}
