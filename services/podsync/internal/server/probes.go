package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
)

// SyncProbes implements PodSyncService: targets down, results up.
func (s *Server) SyncProbes(stream grpc.BidiStreamingServer[podsyncv1.SyncProbesRequest, podsyncv1.SyncProbesResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	// It ends with the stream: Recv fails when the handler has returned.
	go func() { cancel(s.receive(stream)) }()
	sub := s.deps.Probes.Subscribe(ctx)
	defer sub.Close()
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			cause := context.Cause(ctx)
			if errors.Is(cause, io.EOF) {
				return nil
			}
			return cause
		}
		if err := stream.Send(s.targets(frame)); err != nil {
			return err
		}
	}
}

// receive takes results in until the client is gone.
func (s *Server) receive(stream grpc.BidiStreamingServer[podsyncv1.SyncProbesRequest, podsyncv1.SyncProbesResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		results := make([]probestore.Result, 0, len(req.GetResults()))
		for _, r := range req.GetResults() {
			results = append(results, resultOf(r))
		}
		events := make([]probestore.Event, 0, len(req.GetEvents()))
		for _, e := range req.GetEvents() {
			events = append(events, probestore.Event{Key: keyOf(e.GetKey()), Reason: e.GetReason(), Message: e.GetMessage()})
		}
		s.deps.Probes.Report(results, events)
	}
}

func resultOf(r *podsyncv1.ProbeResult) probestore.Result {
	out := probestore.Result{
		Key:         keyOf(r.GetKey()),
		Known:       r.GetOutcome() != podsyncv1.ProbeOutcome_PROBE_OUTCOME_UNSPECIFIED,
		ProbeResult: podstate.ProbeResult{ContainerID: r.GetContainerId(), Success: r.GetOutcome() == podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS, Message: r.GetMessage()},
	}
	out.Count = probestore.Count{Successes: r.GetSuccesses(), Failures: r.GetFailures()}
	if r.GetTime() != nil {
		out.At = r.GetTime().AsTime()
	}
	return out
}

func keyOf(k *podsyncv1.ProbeKey) probestore.Key {
	return probestore.Key{UID: types.UID(k.GetPodUid()), ProbeKey: podstate.ProbeKey{Container: k.GetContainer(), Type: podstate.ProbeType(k.GetType())}}
}

func keyMessage(k probestore.Key) *podsyncv1.ProbeKey {
	return &podsyncv1.ProbeKey{PodUid: string(k.UID), Container: k.Container, Type: podsyncv1.ProbeType(k.Type)}
}

func (s *Server) targets(frame watch.Frame[probestore.Key, probestore.Target]) *podsyncv1.SyncProbesResponse {
	resp := &podsyncv1.SyncProbesResponse{Epoch: frame.Epoch, Revision: frame.Revision, Snapshot: frame.Snapshot}
	for _, t := range frame.Changed {
		resp.Targets = append(resp.Targets, s.targetMessage(t))
	}
	for _, key := range frame.Removed {
		resp.Removed = append(resp.Removed, keyMessage(key))
	}
	return resp
}

func (s *Server) targetMessage(t probestore.Target) *podsyncv1.ProbeTarget {
	p := t.Probe
	m := &podsyncv1.ProbeTarget{
		Key: keyMessage(t.Key), Pod: refOf(t.UID, t.Namespace, t.Name), ContainerId: t.ContainerID,
		ContainerStartTime: stamp(t.StartedAt), Started: t.Started, PodIp: t.PodIP,
		InitialDelaySeconds: p.InitialDelaySeconds, TimeoutSeconds: max(p.TimeoutSeconds, 1), PeriodSeconds: orDefault(p.PeriodSeconds, 10),
		SuccessThreshold: max(p.SuccessThreshold, 1), FailureThreshold: orDefault(p.FailureThreshold, 3),
	}
	if last, ok := s.deps.Probes.Result(t.Key); ok && last.ContainerID == t.ContainerID {
		m.LastOutcome = podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE
		if last.Success {
			m.LastOutcome = podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS
		}
	}
	counted := s.deps.Probes.Count(t.Key)
	m.LastSuccesses, m.LastFailures = counted.Successes, counted.Failures
	setHandler(m, t)
	return m
}

func orDefault(v, def int32) int32 {
	if v > 0 {
		return v
	}
	return def
}

func setHandler(m *podsyncv1.ProbeTarget, t probestore.Target) {
	switch h := t.Probe.ProbeHandler; {
	case h.Exec != nil:
		m.Handler = &podsyncv1.ProbeTarget_Exec{Exec: &podsyncv1.ExecHandler{Command: h.Exec.Command}}
	case h.HTTPGet != nil:
		m.Handler = &podsyncv1.ProbeTarget_HttpGet{HttpGet: httpHandler(h.HTTPGet, t.PortName)}
	case h.TCPSocket != nil:
		m.Handler = &podsyncv1.ProbeTarget_TcpSocket{TcpSocket: &podsyncv1.TCPSocketHandler{Host: h.TCPSocket.Host, Port: h.TCPSocket.Port.IntVal, PortName: t.PortName}}
	case h.GRPC != nil:
		g := &podsyncv1.GRPCHandler{Port: h.GRPC.Port}
		if h.GRPC.Service != nil {
			g.Service = *h.GRPC.Service
		}
		m.Handler = &podsyncv1.ProbeTarget_Grpc{Grpc: g}
	}
}

func httpHandler(h *v1.HTTPGetAction, portName string) *podsyncv1.HTTPGetHandler {
	m := &podsyncv1.HTTPGetHandler{Scheme: "http", Host: h.Host, Port: h.Port.IntVal, Path: h.Path, PortName: portName}
	if h.Scheme == v1.URISchemeHTTPS {
		m.Scheme = "https"
	}
	for _, header := range h.HTTPHeaders {
		m.Headers = append(m.Headers, &podsyncv1.HTTPHeader{Name: header.Name, Value: header.Value})
	}
	return m
}
