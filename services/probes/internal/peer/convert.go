package peer

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// ToTarget turns podsync's target into ours. Unset numbers take Kubernetes' defaults.
func ToTarget(t *podsyncv1.ProbeTarget) probe.Target {
	out := probe.Target{
		Key:              toKey(t.GetKey()),
		Namespace:        t.GetPod().GetNamespace(),
		Name:             t.GetPod().GetName(),
		ContainerID:      t.GetContainerId(),
		Started:          t.GetStarted(),
		PodIP:            t.GetPodIp(),
		InitialDelay:     seconds(t.GetInitialDelaySeconds(), 0),
		Timeout:          seconds(t.GetTimeoutSeconds(), 1),
		Period:           seconds(t.GetPeriodSeconds(), 10),
		SuccessThreshold: int(max(t.GetSuccessThreshold(), 1)),
		FailureThreshold: int(t.GetFailureThreshold()),
		LastOutcome:      toOutcome(t.GetLastOutcome()),
		LastCount:        probe.Count{Successes: int(t.GetLastSuccesses()), Failures: int(t.GetLastFailures())},
		Handler:          toHandler(t),
	}
	if out.FailureThreshold < 1 {
		out.FailureThreshold = 3
	}
	if start := t.GetContainerStartTime(); start != nil {
		out.ContainerStart = start.AsTime()
	}
	return out
}

func seconds(n, fallback int32) time.Duration {
	if n < 1 {
		n = fallback
	}
	return time.Duration(n) * time.Second
}

func toKey(k *podsyncv1.ProbeKey) probe.Key {
	return probe.Key{PodUID: k.GetPodUid(), Container: k.GetContainer(), Type: probe.Type(k.GetType())}
}

func fromKey(k probe.Key) *podsyncv1.ProbeKey {
	return &podsyncv1.ProbeKey{PodUid: k.PodUID, Container: k.Container, Type: podsyncv1.ProbeType(k.Type)}
}

func toOutcome(o podsyncv1.ProbeOutcome) probe.Outcome { return probe.Outcome(o) }

// FromOutcome turns an outcome into podsync's.
func FromOutcome(o probe.Outcome) podsyncv1.ProbeOutcome { return podsyncv1.ProbeOutcome(o) }

func toHandler(t *podsyncv1.ProbeTarget) probe.Handler {
	switch h := t.GetHandler().(type) {
	case *podsyncv1.ProbeTarget_Exec:
		return probe.Exec{Command: h.Exec.GetCommand()}
	case *podsyncv1.ProbeTarget_HttpGet:
		out := probe.HTTPGet{
			Scheme: h.HttpGet.GetScheme(), Host: h.HttpGet.GetHost(), Port: int(h.HttpGet.GetPort()),
			PortName: h.HttpGet.GetPortName(), Path: h.HttpGet.GetPath(),
		}
		for _, line := range h.HttpGet.GetHeaders() {
			out.Headers = append(out.Headers, probe.Header{Name: line.GetName(), Value: line.GetValue()})
		}
		return out
	case *podsyncv1.ProbeTarget_TcpSocket:
		return probe.TCPSocket{Host: h.TcpSocket.GetHost(), Port: int(h.TcpSocket.GetPort()), PortName: h.TcpSocket.GetPortName()}
	case *podsyncv1.ProbeTarget_Grpc:
		return probe.GRPC{Port: int(h.Grpc.GetPort()), Service: h.Grpc.GetService()}
	default:
		return nil
	}
}

// FromTarget is the inverse of ToTarget, for showing what is probed.
func FromTarget(t probe.Target) *podsyncv1.ProbeTarget {
	out := &podsyncv1.ProbeTarget{
		Key:                 fromKey(t.Key),
		Pod:                 pod(t),
		ContainerId:         t.ContainerID,
		Started:             t.Started,
		PodIp:               t.PodIP,
		InitialDelaySeconds: int32(t.InitialDelay / time.Second),
		TimeoutSeconds:      int32(t.Timeout / time.Second),
		PeriodSeconds:       int32(t.Period / time.Second),
		SuccessThreshold:    int32(t.SuccessThreshold),
		FailureThreshold:    int32(t.FailureThreshold),
		LastOutcome:         FromOutcome(t.LastOutcome),
		LastSuccesses:       int32(t.LastCount.Successes),
		LastFailures:        int32(t.LastCount.Failures),
	}
	if !t.ContainerStart.IsZero() {
		out.ContainerStartTime = timestamppb.New(t.ContainerStart)
	}
	fromHandler(out, t.Handler)
	return out
}

func fromHandler(out *podsyncv1.ProbeTarget, h probe.Handler) {
	switch h := h.(type) {
	case probe.Exec:
		out.Handler = &podsyncv1.ProbeTarget_Exec{Exec: &podsyncv1.ExecHandler{Command: h.Command}}
	case probe.HTTPGet:
		get := &podsyncv1.HTTPGetHandler{Scheme: h.Scheme, Host: h.Host, Port: int32(h.Port), PortName: h.PortName, Path: h.Path}
		for _, line := range h.Headers {
			get.Headers = append(get.Headers, &podsyncv1.HTTPHeader{Name: line.Name, Value: line.Value})
		}
		out.Handler = &podsyncv1.ProbeTarget_HttpGet{HttpGet: get}
	case probe.TCPSocket:
		out.Handler = &podsyncv1.ProbeTarget_TcpSocket{TcpSocket: &podsyncv1.TCPSocketHandler{Host: h.Host, Port: int32(h.Port), PortName: h.PortName}}
	case probe.GRPC:
		out.Handler = &podsyncv1.ProbeTarget_Grpc{Grpc: &podsyncv1.GRPCHandler{Port: int32(h.Port), Service: h.Service}}
	}
}

func pod(t probe.Target) *podsyncv1.PodRef {
	return &podsyncv1.PodRef{Namespace: t.Namespace, Name: t.Name, Uid: t.Key.PodUID}
}

func fromResult(r probe.Result) *podsyncv1.ProbeResult {
	return &podsyncv1.ProbeResult{
		Key: fromKey(r.Key), ContainerId: r.ContainerID, Outcome: FromOutcome(r.Outcome),
		Time: timestamppb.New(r.Time), Message: r.Message, Successes: int32(r.Count.Successes), Failures: int32(r.Count.Failures),
	}
}

func fromEvent(e probe.Event) *podsyncv1.ProbeEvent {
	return &podsyncv1.ProbeEvent{
		Key: fromKey(e.Key), Pod: &podsyncv1.PodRef{Namespace: e.Namespace, Name: e.Name, Uid: e.Key.PodUID},
		Reason: e.Reason, Message: e.Message,
	}
}
