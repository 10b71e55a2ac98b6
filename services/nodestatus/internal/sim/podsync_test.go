package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// told is what podsync was told of pressure; it is forgotten with podsync, and does not
// count any more after a time.
type told struct {
	conditions []string
	at, until  time.Time
}

func (w *world) podsyncHandles(ctx context.Context, run *run, method string, req proto.Message) (proto.Message, error) {
	switch r := req.(type) {
	case *podsyncv1.GetRuntimeRequest:
		return w.runtime(), nil
	case *podsyncv1.ListImagesRequest:
		return &podsyncv1.ListImagesResponse{}, nil
	case *podsyncv1.ListDesiredPodsRequest:
		return w.desired(r)
	case *podsyncv1.StopPodRequest:
		return w.stopPod(ctx, run, r)
	case *podsyncv1.ReclaimRequest:
		return w.reclaim(ctx, r)
	case *podsyncv1.SetShutdownRequest:
		return w.setShutdown(r), nil
	case *podsapi.ListPodsRequest:
		return w.listPods(), nil
	case *podsyncv1.SetPressureRequest:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = &told{conditions: r.GetConditions(), at: time.Now(), until: time.Now().Add(r.GetTtl().AsDuration())}
		w.tell("TOLD", r.GetConditions())
		return &podsyncv1.SetPressureResponse{}, nil
	}
	return nil, fmt.Errorf("%w: %s", rpcerr.ErrUnimplemented, method)
}

func (w *world) runtime() *podsyncv1.GetRuntimeResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := timestamppb.Now()
	out := &podsyncv1.GetRuntimeResponse{Name: "containerd", RuntimeReady: true, NetworkReady: true, LastOkTime: now, LastRelistTime: now}
	if w.told != nil {
		out.ToldPressure = &podsyncv1.ToldPressure{Conditions: w.told.conditions, Time: timestamppb.New(w.told.at)}
	}
	return out
}

// desired are the pods as their sources have them: without the apiserver, as they were.
func (w *world) desired(r *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &podsyncv1.ListDesiredPodsResponse{Epoch: uint64(w.podsync.life), Revision: w.revision, EndingsKnown: true, Partial: time.Now().Before(w.partialUntil)}
	for _, p := range w.podsLocked() {
		if s := p.stop; s != nil && (p.alive || w.machine.uses[p.name].volumeThere()) {
			out.Endings = append(out.Endings, &podsyncv1.PodEnding{
				Uid: p.uid(), Namespace: namespace, Name: p.name, Reason: s.reason, Message: s.message, Signal: s.signal, Since: timestamppb.New(s.since), Grace: durationpb.New(s.grace), Ended: !p.alive,
			})
		}
	}
	if r.GetKnownEpoch() == out.Epoch && r.GetKnownRevision() == out.Revision {
		out.Unchanged = true
		return out, nil
	}
	for i, p := range w.podsLocked() {
		if !p.listed || out.Partial && i%2 == 1 {
			continue
		}
		data, err := p.object.Marshal()
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, data)
	}
	if out.Partial {
		out.Revision = 0
	}
	return out, nil
}

func (w *world) podsLocked() []*pod {
	out := make([]*pod, 0, len(w.pods))
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		out = append(out, w.pods[name])
	}
	return out
}

func (w *world) byUIDLocked(uid string) *pod {
	for _, p := range w.pods {
		if p.uid() == uid {
			return p
		}
	}
	return nil
}

// stopCalled is nodestatus beginning to ask for a pod's end: it has decided then, whenever
// podsync hears of it, if it does. over is the end of the call.
func (w *world) stopCalled(run *run, r *podsyncv1.StopPodRequest) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if run.dead() {
		return func() {}
	}
	p := w.byUIDLocked(r.GetPod().GetUid())
	w.judge.askedLocked(run, p, r)
	if p == nil || r.GetShutdown() {
		return func() {}
	}
	w.judge.calls[p]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.judge.calls[p]--
	}
}

// stopPod is podsync being asked to end a pod.
func (w *world) stopPod(ctx context.Context, run *run, r *podsyncv1.StopPodRequest) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.byUIDLocked(r.GetPod().GetUid())
	switch {
	case p == nil || !p.alive || p.name != r.GetPod().GetName():
		return nil, fmt.Errorf("%w: pod %s", rpcerr.ErrNotFound, r.GetPod().GetName())
	case p.spared && !r.GetShutdown():
		return nil, fmt.Errorf("%w: pod %s is static or critical", rpcerr.ErrPrecondition, p.name)
	}
	if w.dieAtStop == 1 { // before it keeps it
		w.dieAtStop = 0
		w.killPodsyncLocked(w.dieFor)
		return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
	}
	already, grace := p.stop != nil, min(r.GetGrace().AsDuration(), p.grace)
	if !already {
		p.stop = &stop{message: r.GetMessage(), signal: r.GetSignal(), reason: r.GetReason(), since: time.Now(), grace: grace}
	}
	s := p.stop
	if !already || grace < s.grace {
		s.grace = grace
		w.endsLocked(p, time.Now().Add(p.dying(grace)))
	}
	s.kept = s.kept || !w.full
	w.notifyLocked()
	w.tell("STOP", p.name, s.message, "grace", grace, "kept", s.kept)
	if w.dieAtStop > 1 { // when it has kept it, and before it answers
		w.dieAtStop = 0
		w.killPodsyncLocked(w.dieFor)
		return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
	}
	if w.runDiesAtStop {
		w.runDiesAtStop = false
		away := w.dieFor
		w.lives.Go(func() { w.restart(away) })
		run.kill()
	}
	if !s.kept {
		w.mu.Unlock()
		pause(ctx, time.Second)
		w.mu.Lock()
		return nil, fmt.Errorf("%w: no space left on device: it ends all the same", rpcerr.ErrInternal)
	}
	w.judge.takenLocked(run, p, r.GetMessage())
	return &podsyncv1.StopPodResponse{Already: already}, nil
}

// dying is how long a pod takes to end that has so much time.
func (p *pod) dying(grace time.Duration) time.Duration {
	if p.down {
		return 20 * time.Millisecond
	}
	if p.takes <= grace && p.late == 0 {
		return max(p.takes, 20*time.Millisecond)
	}
	return grace + max(p.late, 50*time.Millisecond)
}

// endsLocked has a pod end then.
func (w *world) endsLocked(p *pod, at time.Time) {
	if p.stop.timer != nil {
		p.stop.timer.Stop()
	}
	p.stop.timer = time.AfterFunc(time.Until(at), func() { w.set(func() { w.endLocked(p) }) })
}

// endLocked is the end of a pod's processes. Its volumes go some time later, what the
// runtime keeps of it when somebody removes it.
func (w *world) endLocked(p *pod) {
	if !p.alive {
		return
	}
	p.alive, p.down, p.ended = false, false, time.Now()
	u := w.machine.uses[p.name]
	w.machine.uses[p.name] = use{volume: u.volume, files: u.files, logs: u.logs, layer: u.layer, layerFiles: u.layerFiles}
	w.revision++
	w.tell("END", p.name)
	w.reportLocked(p)
	time.AfterFunc(p.emptying, func() {
		w.set(func() {
			u := w.machine.uses[p.name]
			u.volume, u.files = 0, 0
			w.machine.uses[p.name] = u
		})
	})
	time.AfterFunc(time.Minute, func() { w.set(func() { delete(w.machine.uses, p.name) }) })
	time.AfterFunc(p.emptying+5*time.Second, func() { w.goes(p) })
}

// reportLocked has the source say that a pod has ended, if the apiserver is there.
func (w *world) reportLocked(p *pod) {
	if w.partitioned {
		time.AfterFunc(5*time.Second, func() { w.set(func() { w.reportLocked(p) }) })
		return
	}
	p.object = p.object.DeepCopy()
	p.object.Status.Phase = v1.PodFailed
	w.revision++
}

// goes has the source forget a pod that has ended.
func (w *world) goes(p *pod) {
	w.set(func() {
		if w.partitioned {
			time.AfterFunc(5*time.Second, func() { w.goes(p) })
			return
		}
		p.listed = false
		w.revision++
	})
}

// volumeThere: not all of a pod's volumes are gone.
func (u use) volumeThere() bool { return u.volume > 0 || u.files > 0 }

// reclaim frees images that nobody uses, and what the runtime keeps of ended containers.
func (w *world) reclaim(ctx context.Context, r *podsyncv1.ReclaimRequest) (proto.Message, error) {
	began := time.Now()
	w.mu.Lock()
	draw, life := w.draw("reclaim", w.podsync.calls["Reclaim"]), w.podsync.life
	w.mu.Unlock()
	if !pause(ctx, time.Duration(50+draw%2000)*time.Millisecond) {
		return nil, rpcerr.ErrTimeout
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dieAtReclaim && w.podsync.life == life {
		w.dieAtReclaim = false
		w.killPodsyncLocked(w.dieFor)
	}
	switch {
	case w.podsync.life != life:
		return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
	case time.Now().Before(w.partialUntil):
		return nil, fmt.Errorf("%w: not all pods are known yet", rpcerr.ErrUnavailable)
	}
	out := &podsyncv1.ReclaimResponse{}
	if r.GetImages() && w.machine.images > 0 {
		out.Images, out.ImageBytes = 1, w.machine.images
	}
	var dead, older []string
	for _, p := range w.podsLocked() {
		switch u := w.machine.uses[p.name]; {
		case !r.GetContainers():
		case !p.alive && u.layer+u.logs+u.layerFiles > 0:
			out.Containers++
			dead = append(dead, p.name)
		case u.kept+u.keptFiles > 0: // What a back-off is owed stays.
			out.Containers++
			older = append(older, p.name)
		}
	}
	w.judge.reclaimedLocked(began, r, out)
	w.tell("RECLAIM", out.GetImages(), out.GetContainers())
	time.AfterFunc(time.Duration(draw%1500)*time.Millisecond, func() { // The runtime frees it some time later.
		w.set(func() {
			if out.GetImages() > 0 {
				w.machine.images = 0
			}
			for _, name := range older {
				u := w.machine.uses[name]
				u.kept, u.keptFiles = 0, 0
				w.machine.uses[name] = u
			}
			for _, name := range dead {
				u := w.machine.uses[name]
				u.layer, u.logs, u.layerFiles = 0, 0, 0
				w.machine.uses[name] = u
			}
		})
	})
	return out, nil
}

// reclaimCalled is the end of a call to reclaim.
func (w *world) reclaimCalled(run *run, began time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !run.dead() {
		w.tell("NO RECLAIM", err)
		w.judge.undoneLocked(began)
	}
}

// podsyncOpens begins a stream: of pods, or one on which nothing is told.
func (w *world) podsyncOpens(_ *run, method string, _ proto.Message) func(ctx context.Context) (proto.Message, error) {
	w.mu.Lock()
	life := w.podsync.life
	w.mu.Unlock()
	switch method {
	case "WatchVolumesInUse":
		return w.volumesInUse(life)
	case "WatchPods":
	default:
		return w.nothing(w.podsync, life)
	}
	sent, whole := map[string]v1.PodPhase{}, false
	return func(ctx context.Context) (proto.Message, error) {
		for {
			w.mu.Lock()
			event, changed, away := w.eventLocked(sent, &whole), w.changed, w.podsync.down || w.podsync.life != life
			w.mu.Unlock()
			switch {
			case away:
				return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
			case event != nil:
				return event, nil
			}
			select {
			case <-ctx.Done():
				return nil, ended(ctx)
			case <-changed:
			}
		}
	}
}

// eventLocked is what is to be told next of podsync's pods; nil: nothing is.
func (w *world) eventLocked(sent map[string]v1.PodPhase, whole *bool) proto.Message {
	tell := func(kind podsapi.EventType, object *v1.Pod) proto.Message {
		data, err := object.Marshal()
		w.must(err)
		return &podsapi.WatchPodsEvent{Type: kind, Pod: data}
	}
	for _, p := range w.podsLocked() {
		phase, before := v1.PodRunning, sent[p.name]
		if !p.alive {
			phase = v1.PodFailed
		}
		switch {
		case !p.listed && !p.alive && before != "":
			delete(sent, p.name)
			return tell(podsapi.EventType_DELETED, p.object)
		case before != phase && p.listed:
			sent[p.name] = phase
			object := p.object.DeepCopy()
			object.Status.Phase = phase
			return tell(podsapi.EventType_ADDED, object)
		}
	}
	if !*whole {
		*whole = true
		return &podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}
	}
	return nil
}

// volumesInUse is a stream that says that there are none.
func (w *world) volumesInUse(life int) func(ctx context.Context) (proto.Message, error) {
	said, rest := false, w.nothing(w.podsync, life)
	return func(ctx context.Context) (proto.Message, error) {
		if said {
			return rest(ctx)
		}
		said = true
		return &podsyncv1.WatchVolumesInUseResponse{Epoch: uint64(life), Revision: 1, Snapshot: true}, nil
	}
}

// nothing is a stream on which nothing is told.
func (w *world) nothing(p *process, life int) func(ctx context.Context) (proto.Message, error) {
	return func(ctx context.Context) (proto.Message, error) {
		for {
			w.mu.Lock()
			changed, away := w.changed, p.down || p.life != life
			w.mu.Unlock()
			if away {
				return nil, fmt.Errorf("%w: the connection ended", rpcerr.ErrUnavailable)
			}
			select {
			case <-ctx.Done():
				return nil, ended(ctx)
			case <-changed:
			}
		}
	}
}

// killPodsyncLocked is podsync's death: what it has not kept is forgotten.
func (w *world) killPodsyncLocked(away time.Duration) {
	w.tell("podsync dies, and is away for", away)
	w.podsync.life++
	w.podsync.down, w.told, w.closed = true, nil, false
	for _, p := range w.podsLocked() {
		if s := p.stop; s != nil && !s.kept && p.alive {
			s.timer.Stop()
			p.stop = nil
		}
	}
	w.fault("podsync", away+w.gathers)
	w.notifyLocked()
	time.AfterFunc(away, func() {
		w.set(func() {
			w.podsync.down = false
			w.partialUntil = time.Now().Add(w.gathers)
			w.tell("podsync is back")
		})
	})
}
