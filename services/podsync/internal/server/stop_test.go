package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// acts notes what the node is asked to do for reasons of its own.
type acts struct {
	uid         types.UID
	stop        podstate.Stop
	annotations map[string]string
	err         error
	endings     []podstate.Ending

	conditions []v1.NodeConditionType
	counts     time.Duration

	freed   Reclaimed
	asked   []string
	holding chan struct{} // a reclaim waits for it, unless it is nil
}

func (a *acts) Stop(_ context.Context, uid types.UID, stop podstate.Stop, annotations map[string]string) (bool, error) {
	a.uid, a.stop, a.annotations = uid, stop, annotations
	return true, a.err
}

func (a *acts) Endings() []podstate.Ending { return a.endings }

func (a *acts) setPressure(conditions []v1.NodeConditionType, counts time.Duration) {
	a.conditions, a.counts = conditions, counts
}

func (a *acts) Containers(context.Context) (Reclaimed, error) {
	a.asked = append(a.asked, "containers")
	if a.holding != nil {
		<-a.holding
	}
	return a.freed, a.err
}

func (a *acts) Images(context.Context) (Reclaimed, error) {
	a.asked = append(a.asked, "images")
	return Reclaimed{Count: 7, Bytes: 1 << 40, Failed: []string{strings.Repeat("é", 1<<20)}}, nil
}

// eviction is a request as nodestatus makes it.
func eviction() *podsyncv1.StopPodRequest {
	return &podsyncv1.StopPodRequest{
		Pod: &podsyncv1.PodRef{Namespace: "ns", Name: "p", Uid: "u"}, Reason: "Evicted", Message: "The node was low on resource: memory. ",
		Grace: durationpb.New(1500 * time.Millisecond), DisruptionReason: v1.PodReasonTerminationByKubelet, DisruptionMessage: "low", Signal: "memory.available",
		EventAnnotations: map[string]string{"starved_resource": "memory"},
	}
}

func TestAPodIsStoppedAsTheRequestSays(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		resp, err := r.client.StopPod(t.Context(), eviction())
		if err != nil || !resp.GetAlready() {
			t.Fatalf("%v, %v", resp, err)
		}
		two := int64(2)
		want := podstate.Stop{Reason: "Evicted", Message: "The node was low on resource: memory. ", Signal: "memory.available", GraceSeconds: &two, Condition: &v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: "low",
		}}
		if r.act.uid != "u" || !reflect.DeepEqual(r.act.stop, want) || r.act.annotations["starved_resource"] != "memory" {
			t.Errorf("%s, %+v, %v", r.act.uid, r.act.stop, r.act.annotations)
		}
		req := eviction()
		req.Grace, req.DisruptionReason, req.DisruptionMessage = nil, "", ""
		if _, err := r.client.StopPod(t.Context(), req); err != nil || r.act.stop.GraceSeconds != nil || r.act.stop.Condition != nil {
			t.Errorf("the pod's own: %v, %+v", err, r.act.stop)
		}
		req.Grace = durationpb.New(0)
		if _, err := r.client.StopPod(t.Context(), req); err != nil || *r.act.stop.GraceSeconds != 0 {
			t.Errorf("at once: %v, %+v", err, r.act.stop)
		}
	})
}

func TestWhoWaitsNoLongerHasNoPodStopped(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.server.StopPod(ctx, eviction()); !errors.Is(err, rpcerr.ErrUnavailable) || r.act.uid != "" {
			t.Errorf("%v, stopped %q", err, r.act.uid)
		}
	})
}

func TestWhichPodsTheNodeEndsIsToldBesideThePods(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		two, since := int64(2), time.Now().Add(-time.Minute)
		r.act.endings = []podstate.Ending{
			{UID: "u", Namespace: "ns", Name: "pod", Stop: podstate.Stop{Reason: "Evicted", Message: "low", Signal: "memory.available", GraceSeconds: &two}, Since: since, Ended: true}, {UID: "v"},
		}
		resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{})
		if err != nil || !resp.GetEndingsKnown() || len(resp.GetEndings()) != 2 {
			t.Fatalf("%v, %v", resp, err)
		}
		u, v := resp.GetEndings()[0], resp.GetEndings()[1]
		if u.GetUid() != "u" || u.GetReason() != "Evicted" || u.GetMessage() != "low" || u.GetSignal() != "memory.available" || u.GetGrace().AsDuration() != 2*time.Second || !u.GetSince().AsTime().Equal(since) || !u.GetEnded() || u.GetNamespace() != "ns" || u.GetName() != "pod" {
			t.Errorf("%v", u)
		}
		if v.GetGrace() != nil || v.GetEnded() {
			t.Errorf("with the pod's own grace period: %v", v)
		}
		r.table.SetPod("orphan", []podstate.SandboxRow{{ID: "s", UID: "orphan", Namespace: "ns", Name: "dropped", Ready: true}}, nil)
		r.act.endings = []podstate.Ending{{UID: "orphan"}}
		if resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{}); err != nil || len(resp.GetEndings()) != 1 ||
			resp.GetEndings()[0].GetNamespace() != "ns" || resp.GetEndings()[0].GetName() != "dropped" {
			t.Errorf("one that only the runtime knows: %v, %v", resp, err)
		}
		r.act.endings = nil
		again, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{KnownEpoch: resp.GetEpoch(), KnownRevision: resp.GetRevision()})
		if err != nil || !again.GetUnchanged() || !again.GetEndingsKnown() || len(again.GetEndings()) != 0 {
			t.Errorf("when they have ended: %v, %v", again, err)
		}
	})
}

func TestAStopThatCannotBeIsRefused(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		for name, tc := range map[string]struct {
			change func(*podsyncv1.StopPodRequest)
			code   codes.Code
			text   string
		}{
			"no UID":                 {func(q *podsyncv1.StopPodRequest) { q.Pod.Uid = "" }, codes.InvalidArgument, "UID must be given"},
			"no name":                {func(q *podsyncv1.StopPodRequest) { q.Pod.Name = "" }, codes.InvalidArgument, "namespace and name"},
			"no reason":              {func(q *podsyncv1.StopPodRequest) { q.Reason = "" }, codes.InvalidArgument, "reason must be given"},
			"a long reason":          {func(q *podsyncv1.StopPodRequest) { q.Reason = strings.Repeat("x", 1025) }, codes.InvalidArgument, "1024 bytes"},
			"a long message":         {func(q *podsyncv1.StopPodRequest) { q.Message = strings.Repeat("x", 32769) }, codes.InvalidArgument, "32768 bytes"},
			"a long condition":       {func(q *podsyncv1.StopPodRequest) { q.DisruptionMessage = strings.Repeat("x", 32769) }, codes.InvalidArgument, "32768 bytes"},
			"half a condition":       {func(q *podsyncv1.StopPodRequest) { q.DisruptionReason = "" }, codes.InvalidArgument, "needs a reason"},
			"time that has passed":   {func(q *podsyncv1.StopPodRequest) { q.Grace = durationpb.New(-time.Second) }, codes.InvalidArgument, "less than 0"},
			"time that is none":      {func(q *podsyncv1.StopPodRequest) { q.Grace = &durationpb.Duration{Seconds: 1, Nanos: -1} }, codes.InvalidArgument, "grace period"},
			"an annotation's key":    {func(q *podsyncv1.StopPodRequest) { q.EventAnnotations["a b"] = "" }, codes.InvalidArgument, "event_annotations"},
			"annotations of all":     {func(q *podsyncv1.StopPodRequest) { q.EventAnnotations["a"] = strings.Repeat("x", 1<<18) }, codes.InvalidArgument, "event_annotations"},
			"another pod":            {func(q *podsyncv1.StopPodRequest) { q.Pod.Uid = "other" }, codes.NotFound, "does not exist"},
			"another pod's name":     {func(q *podsyncv1.StopPodRequest) { q.Pod.Name = "q" }, codes.NotFound, "does not exist"},
			"nothing is asked for":   {func(q *podsyncv1.StopPodRequest) { proto.Reset(q) }, codes.InvalidArgument, "UID"},
			"a condition's reason":   {func(q *podsyncv1.StopPodRequest) { q.DisruptionReason = strings.Repeat("x", 1025) }, codes.InvalidArgument, "1024 bytes"},
			"the pod may be to come": {func(*podsyncv1.StopPodRequest) { r.state.SourcesReady = time.Time{}; r.pods.Remove("u") }, codes.Unavailable, "not known yet"},
		} {
			ready := r.state.SourcesReady
			req := eviction()
			tc.change(req)
			_, err := r.client.StopPod(t.Context(), req)
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s: %v", name, err)
			}
			r.state.SourcesReady = ready
			r.pods.Set(runningPod())
		}
		if r.act.uid != "" {
			t.Errorf("%s was stopped", r.act.uid)
		}
	})
}

func TestWhyAPodIsNotStoppedHasItsCode(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		for _, tc := range []struct {
			err  error
			code codes.Code
		}{
			{&StopError{Err: errors.New("it has ended"), Gone: true}, codes.NotFound},
			{&StopError{Err: errors.New("it is critical"), Never: true}, codes.FailedPrecondition},
			{errors.New("the disk is full"), codes.Internal},
			{fmt.Errorf("%w: nobody works yet", rpcerr.ErrUnavailable), codes.Unavailable},
		} {
			r.act.err = tc.err
			_, err := r.client.StopPod(t.Context(), eviction())
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), "stop pod ns/p: "+tc.err.Error()) {
				t.Errorf("%v: %v", tc.err, err)
			}
		}
	})
}

// An older podsync, or a part of one, knows none of them.
func TestWhatIsNotServedIsUnimplemented(t *testing.T) {
	s := &Server{}
	_, stop := s.StopPod(t.Context(), eviction())
	_, pressure := s.SetPressure(t.Context(), &podsyncv1.SetPressureRequest{})
	_, reclaim := s.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Images: true})
	for _, err := range []error{stop, pressure, reclaim} {
		if err == nil || !strings.Contains(err.Error(), "not implemented") {
			t.Errorf("%v", err)
		}
	}
}
