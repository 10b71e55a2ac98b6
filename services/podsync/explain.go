package podsync

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/explain"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/report/trace"
)

// trace makes what sends spans, when a collector is configured. The connections
// to the runtime then make a span of each call that an action makes.
func (s *Service) trace() error {
	if s.cfg.TraceEndpoint == nil {
		return nil
	}
	tracer, err := trace.New(context.Background(), trace.Config{
		Endpoint: *s.cfg.TraceEndpoint, SamplingRatePerMillion: s.cfg.TraceSamplingPerMillion, NodeName: s.cfg.NodeName,
	})
	if err != nil {
		return err
	}
	s.lines.Tracer, s.sendTraces = tracer, tracer.Run
	s.deps.Runtime, s.deps.Images = trace.Calls(s.deps.Runtime), trace.Calls(s.deps.Images)
	return nil
}

// traceStatus opens the span of a status that is sent.
func (s *Service) traceStatus(uid types.UID) (end func(error)) {
	span := s.lines.Trace(uid, "write status", "")
	if span == nil {
		return func(error) {}
	}
	return func(err error) { span.End(time.Now(), err) }
}

// trouble says why the apiserver does not have a pod's status, or the pod not what
// its manifest says; nil when nothing of that is so.
func (s *Service) trouble(uid types.UID) *explain.Trouble {
	t, unwritten := s.statuses.Trouble(uid)
	stale, old := s.sources.Stale(uid)
	if !unwritten && !old {
		return nil
	}
	out := &explain.Trouble{Away: t.Away, Since: t.Since, Retry: t.Retry}
	if old {
		out.Manifest, out.ManifestSince = stale.Err.Error(), stale.Since
	}
	if t.Err != nil {
		out.Message = t.Err.Error()
	}
	for _, r := range t.Refused {
		out.Refused = append(out.Refused, explain.RefusedPart{Part: r.Part.String(), Container: r.Container, Why: r.Why, Since: r.Since})
	}
	return out
}

// withheld tells the pod's owner that a part of its status is refused for good.
// A mirror is replaced instead, see refused.
func (s *Service) withheld(pod *v1.Pod, r status.Refusal) {
	if podutil.Static(pod) {
		return
	}
	message := fmt.Sprintf("The apiserver refuses a part of the pod's status for good; the rest is written without it: %s", r.Why)
	if r.Container != "" {
		s.events.Container(pod, r.Container, v1.EventTypeWarning, "StatusRefused", message)
		return
	}
	s.events.Pod(pod, v1.EventTypeWarning, "StatusRefused", message)
}

// refused puts into a pod's timeline that its status was not written.
func (s *Service) refused(uid types.UID, err error) {
	s.lines.Note(uid, timeline.Entry{What: "status not written", Error: err.Error()})
	// A static pod begins anew when the machine does, with containers that its
	// mirror has as ended for good.
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "may not be transitioned to non-terminated state") {
		s.mirrors.Renew(uid)
	}
}

// mostInDoubt is how many pods are named at once.
const mostInDoubt = 10

// inDoubt says which static pods go on without being looked after.
func (s *Service) inDoubt(pods []string) {
	text := ""
	if len(pods) > 0 {
		named := strings.Join(pods[:min(len(pods), mostInDoubt)], ", ")
		if more := len(pods) - mostInDoubt; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		text = fmt.Sprintf("no manifest that can be read is that of %s: what runs goes on, but nobody probes or restarts it; correct the manifests that cannot be read; what is of none of them when all can be read is ended", named)
		s.events.Node(v1.EventTypeWarning, "StaticPodInDoubt", text)
	}
	s.deps.Health.Set("static pods in doubt", len(pods) == 0, text)
}

// probeEvents records events of probes, and puts failed attempts into the
// pod's timeline.
type probeEvents struct{ s *Service }

// Container implements probe.Events.
func (p probeEvents) Container(pod *v1.Pod, container, eventType, reason, message string) {
	p.s.lines.Note(pod.UID, timeline.Entry{What: timeline.ProbeAttempt, Object: container, Detail: message})
	p.s.events.Container(pod, container, eventType, reason, message)
}
