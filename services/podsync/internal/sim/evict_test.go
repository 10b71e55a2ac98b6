package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// eviction is one call for the end of a pod for a reason of the node's own.
type eviction struct {
	at      time.Time
	message string
	// answered: podsync has said yes; lost: nobody knows whether it has taken it.
	answered, lost bool
	// already: it was being stopped before; idle: nothing of it ran when it was answered.
	already, idle bool
}

// deathOf is when podsync dies at an eviction.
type deathOf int

const (
	survives deathOf = iota
	diesBeforeAnswer
	diesAfterAnswer
)

// ownGrace leaves a pod its own grace period.
const ownGrace = time.Duration(-1)

// evictions adds to a share of the scenarios that the node ends pods, and has room made.
func (s *scenario) evictions(seed int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 12))
	if rng.IntN(3) > 0 {
		return
	}
	when := func() time.Duration { return time.Duration(rng.Int64N(int64(s.noisy))) }
	for _, sub := range s.subjects {
		if sub.shape == drained || rng.IntN(2) == 0 {
			continue
		}
		at := when()
		for range 1 + rng.IntN(2)*rng.IntN(2) {
			grace := []time.Duration{ownGrace, 0, time.Second, 5 * time.Second, 30 * time.Second, 10 * time.Minute}[rng.IntN(6)]
			death := deathOf(max(0, rng.IntN(6)-3))
			s.add(at, fmt.Sprintf("the node evicts %s with grace %s, podsync dies: %d", sub.pod.Name, grace, death), func(w *world) { w.evict(sub, grace, death) })
			at += time.Duration(rng.IntN(10000)) * time.Millisecond
		}
	}
	for range rng.IntN(4) {
		s.add(when(), "the node needs room", func(w *world) { w.reclaim() })
	}
}

// serving is the podsync that answers RPCs now; nil for none.
func (w *world) serving() (*life, podsyncv1.PodSyncServiceServer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life == nil || w.life.dead.Load() || w.life.server == nil {
		return nil, nil
	}
	return w.life, w.life.server
}

// evict asks for a pod's end, some times if podsync is away, as who judges would.
func (w *world) evict(sub *subject, grace time.Duration, death deathOf) {
	w.lives.Go(func() {
		message := ""
		if sub.isHog() {
			message = lowOn
		}
		message += "evicted at " + time.Now().UTC().Format("15:04:05.000")
		for range 5 {
			if w.evictOnce(sub, message, grace, death) {
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// evictOnce says whether nothing is left to ask.
func (w *world) evictOnce(sub *subject, message string, grace time.Duration, death deathOf) bool {
	name := sub.pod.Name
	if sub.static {
		name += "-" + nodeName
	}
	pod := w.api.Pod(namespace, name)
	l, server := w.serving()
	if pod == nil || server == nil {
		return pod == nil
	}
	req := &podsyncv1.StopPodRequest{
		Pod: &podsyncv1.PodRef{Namespace: namespace, Name: name, Uid: string(pod.UID)}, Reason: "Evicted", Message: message,
		DisruptionReason: v1.PodReasonTerminationByKubelet, DisruptionMessage: message,
	}
	if grace != ownGrace {
		req.Grace = durationpb.New(grace)
	}
	e := w.judge.evicts(sub, message, grace)
	if death == diesBeforeAnswer {
		l.crash("before the answer of StopPod")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := server.StopPod(ctx, req)
	w.tell("EVICT", "pod", name, "already", resp.GetAlready(), "err", err, "dead", l.dead.Load())
	switch {
	case l.dead.Load():
		w.judge.lost(e)
		return false
	case err == nil:
		w.judge.answered(sub, e, string(pod.UID), resp.GetAlready())
		if death == diesAfterAnswer {
			l.crash("after the answer of StopPod")
		}
		return true
	}
	w.judge.declined(sub, e)
	switch {
	case errors.Is(err, rpcerr.ErrPrecondition) && !sub.spared():
		w.judge.fail("pod %s is not critical, and cannot be evicted: %v", name, err)
	case !errors.Is(err, rpcerr.ErrPrecondition) && !errors.Is(err, rpcerr.ErrNotFound) && !errors.Is(err, rpcerr.ErrUnavailable):
		w.judge.fail("pod %s cannot be evicted: %v", name, err)
	}
	return !errors.Is(err, rpcerr.ErrUnavailable)
}

// spared says whether the node ends the pod for no reason of its own.
func (s *subject) spared() bool { return s.static || s.shape == critical }

// reclaim has podsync remove what the node can do without.
func (w *world) reclaim() {
	w.lives.Go(func() {
		l, server := w.serving()
		if server == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		resp, err := server.Reclaim(ctx, &podsyncv1.ReclaimRequest{Containers: true, Images: true})
		w.tell("RECLAIM", "containers", resp.GetContainers(), "images", resp.GetImages(), "failed", len(resp.GetFailed()), "err", err)
		if err != nil && !errors.Is(err, rpcerr.ErrUnavailable) && !l.dead.Load() {
			w.judge.fail("nothing can be reclaimed: %v", err)
		}
	})
}

// evicts notes that a pod's end is asked for.
func (j *judge) evicts(sub *subject, message string, grace time.Duration) *eviction {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, e := j.facts[sub.pod.Name], &eviction{at: time.Now(), message: message}
	if grace == ownGrace || grace > sub.grace() {
		grace = sub.grace()
	}
	f.because("the node evicts it", "", e.at, grace)
	f.reasons[len(f.reasons)-1].eviction = e
	f.evictions = append(f.evictions, e)
	return e
}

func (j *judge) lost(e *eviction) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.lost = true
}

// answered notes that podsync has taken an eviction.
func (j *judge) answered(sub *subject, e *eviction, uid string, already bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.answered, e.already, e.idle = true, already, j.live(uid) == 0; sub.spared() {
		j.violationLocked("pod %s was evicted though it is static or critical", sub.pod.Name)
	}
}

// declined notes that podsync does not evict the pod.
func (j *judge) declined(sub *subject, e *eviction) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[sub.pod.Name]
	f.reasons = slices.DeleteFunc(f.reasons, func(r reason) bool { return r.eviction == e })
	f.evictions = slices.DeleteFunc(f.evictions, func(other *eviction) bool { return other == e })
}

// forgetEvictionsLocked notes that what was kept of evictions is spoilt: they may be
// gone on with or not.
func (j *judge) forgetEvictionsLocked() {
	for uid, f := range j.owners {
		for _, e := range f.evictions {
			e.answered, e.lost, f.stopping = false, true, false
			j.disturbed[uid] = true
		}
	}
}

// evictedBefore says whether podsync has taken an eviction of the pod before a time.
func (f *facts) evictedBefore(at time.Time) bool {
	return slices.ContainsFunc(f.evictions, func(e *eviction) bool { return e.answered && e.at.Before(at) })
}

// soonStarted is how long what was begun before an eviction may take to start.
const soonStarted = 3 * time.Second

// comesBack checks, at a start, that nothing of an evicted pod begins any more.
func (j *judge) comesBack(tr fakecri.Transition, f *facts) {
	if made, known := j.made[tr.ID]; known && f.evictedBefore(made.At.Add(-soonStarted)) {
		j.violationLocked("container %s of pod %s was made after the node had evicted it", tr.Name, tr.Pod)
	}
}

// isEvicted says whether a pod's status says that the node has ended it.
func isEvicted(pod *v1.Pod) bool { return pod.Status.Reason == "Evicted" }

// evictedLocked checks a status that says that the node has ended the pod.
func (j *judge) evictedLocked(old, now *v1.Pod) {
	if !isEvicted(now) || isEvicted(old) {
		return
	}
	f := j.owners[uidOf(now)]
	if f == nil || !slices.ContainsFunc(f.evictions, func(e *eviction) bool { return e.message == now.Status.Message }) {
		j.violationLocked("pod %s was evicted, and nobody asked for it: %q", now.Name, now.Status.Message)
	}
	if now.Status.Phase != v1.PodFailed || !saysTerminated(now) {
		j.violationLocked("pod %s was evicted, and its status does not say so: phase %s, conditions %v", now.Name, now.Status.Phase, now.Status.Conditions)
	}
}

// judged says whether a pod had to come to its end by an eviction, and why it has not.
func (f *facts) judged(pod *v1.Pod) (evicted bool, why string) {
	if isEvicted(pod) {
		return true, "" // whether that is right was judged when it was told
	}
	for _, e := range f.evictions {
		switch {
		case !e.answered:
		case e.already && isVictim(pod), e.idle && ended(pod):
			return true, ""
		default:
			return true, "should have been evicted"
		}
	}
	return false, ""
}
