package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Explain says what a pod waits for and what happened to it; of a pod that is
// gone, for some time, what happened.
func (r *Registry) Explain(uid types.UID) (podcache.Explanation, bool) {
	record, known := r.deps.Timelines.Read(uid)
	out := podcache.Explanation{
		UID: uid, Namespace: record.Namespace, Name: record.Name, Gone: record.Gone,
		Timeline: record.Entries, Running: record.Running, Dropped: record.Dropped,
	}
	r.mu.Lock()
	w, left := r.pods[uid], r.ended[uid]
	var ahead []podstate.Wait
	if w != nil && w.keptBack {
		ahead = r.aheadLocked(w)
	}
	r.mu.Unlock()
	switch {
	case w != nil:
		out.Waits = append(w.inbox.shown(), ahead...)
	case left.pod != nil && len(left.pod.Finalizers) > 0:
		out.Namespace, out.Name, out.Gone = left.pod.Namespace, left.pod.Name, left.since
		out.Waits = []podstate.Wait{left.wait()}
		known = true
	}
	return out, known
}

// aheadLocked is what the earlier pods of a static pod's name wait for, which it is kept
// back for: by its name only it is found itself.
func (r *Registry) aheadLocked(w *held) (waits []podstate.Wait) {
	for uid, other := range r.pods {
		named := other.pod == nil && r.observed[uid].StaticOf == w.pod.Namespace+"/"+w.pod.Name
		if other == w || !named && !other.goesBefore(w) {
			continue
		}
		for _, wait := range other.inbox.shown() {
			wait.Reason = fmt.Sprintf("the earlier pod of this name (uid %s): %s", uid, wait.Reason)
			wait.Action = podstate.Key{}
			waits = append(waits, wait)
		}
	}
	slices.SortStableFunc(waits, func(a, b podstate.Wait) int { return strings.Compare(a.Reason, b.Reason) })
	return waits
}

// Gone returns the newest pod of this name that is gone, as long as it is known, or
// one of which only the object is left.
func (r *Registry) Gone(namespace, name string) (types.UID, bool) {
	if uid, ok := r.deps.Timelines.Gone(namespace, name); ok {
		return uid, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, left := range r.ended {
		if left.pod.Namespace == namespace && left.pod.Name == name && len(left.pod.Finalizers) > 0 {
			return uid, true
		}
	}
	return "", false
}

// remains is the object of a pod that has ended, as its source gave it last.
type remains struct {
	pod   *v1.Pod
	since time.Time // nothing of it is on the node
}

// mostFinalizers is how many are named.
const mostFinalizers = 10

// wait says that finalizers keep the object.
func (l remains) wait() podstate.Wait {
	names := strings.Join(l.pod.Finalizers[:min(len(l.pod.Finalizers), mostFinalizers)], ", ")
	if more := len(l.pod.Finalizers) - mostFinalizers; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return podstate.Wait{
		Kind: "apiserver", Since: l.since,
		Reason: "nothing of the pod is left on the node, but its object stays until its finalizers are removed: " + names,
		Advice: "whoever has set a finalizer removes it when its work is done: look whether that controller runs and what it says; if it is gone for good, remove the finalizer with kubectl edit",
	}
}

// objectOf is what an action is about, as the timeline shows it.
func (w *worker) objectOf(a podstate.Action) string {
	switch {
	case a.Kind == podstate.PullImage && a.Volume == "":
		return a.Image
	case a.Container != "":
		return a.Container
	case len(a.Object) > shortID:
		return a.Object[:shortID]
	}
	return a.Object
}

// shortID is how much of a CRI id people read.
const shortID = 13

// noteObserved puts into the timeline what the runtime shows that it did not before.
func (w *worker) noteObserved(old, now *podstate.Observed) {
	before := make(map[string]podstate.ContainerState, len(old.Containers))
	for i := range old.Containers {
		before[old.Containers[i].ID] = old.Containers[i].State
	}
	// They come newest first.
	for i := len(now.Containers) - 1; i >= 0; i-- {
		c := &now.Containers[i]
		was, known := before[c.ID]
		if known && was == c.State {
			continue
		}
		switch c.State {
		case podstate.StateRunning:
			w.line.Note(timeline.Entry{At: c.StartedAt, What: "container runs", Object: c.Name})
		case podstate.StateExited:
			w.line.Note(exitOf(c))
		case podstate.StateUnknown:
			w.line.Note(timeline.Entry{What: "container is in unknown state", Object: c.Name})
		}
	}
	for i := range old.Sandboxes {
		o := &old.Sandboxes[i]
		if o.Ready && !slices.ContainsFunc(now.Sandboxes, func(s podstate.Sandbox) bool { return s.ID == o.ID && s.Ready }) {
			w.line.Note(timeline.Entry{What: "sandbox has stopped"})
		}
	}
}

func exitOf(c *podstate.Container) timeline.Entry {
	e := timeline.Entry{At: c.FinishedAt, What: "container ended", Object: c.Name, Detail: fmt.Sprintf("exit code %d", c.ExitCode)}
	if c.Reason != "" {
		e.Detail += ", " + c.Reason
	}
	if c.ExitCode == 0 {
		return e
	}
	e.Error, e.Detail = e.Detail, ""
	if c.Message != "" {
		e.Error += ": " + c.Message
	}
	return e
}

// noteProbe puts into the timeline that a probe's result turned.
func (w *worker) noteProbe(key podstate.ProbeKey, r podstate.ProbeResult) {
	old, had := w.state.Probes[key]
	if had && old.ContainerID == r.ContainerID && old.Success == r.Success {
		return
	}
	what := key.Type.String() + " probe "
	if r.Success {
		w.line.Note(timeline.Entry{What: what + "succeeds", Object: key.Container})
		return
	}
	w.line.Note(timeline.Entry{What: what + "fails", Object: key.Container, Error: r.Message})
}

// noteStatus puts into the timeline what people look for in a status.
func (w *worker) noteStatus(old, now *v1.PodStatus) {
	if old.Phase != now.Phase {
		detail := string(now.Phase)
		if now.Reason != "" {
			detail += ", " + now.Reason + ": " + now.Message
		}
		w.line.Note(timeline.Entry{At: w.state.Now, What: "phase", Detail: detail})
	}
	if was, is := readyOf(old), readyOf(now); was != is {
		what := "pod is ready"
		if !is {
			what = "pod is not ready"
		}
		w.line.Note(timeline.Entry{At: w.state.Now, What: what})
	}
}

// notePod puts into the timeline that the pod's source has something to say.
func (w *worker) notePod(old, pod *v1.Pod) {
	switch {
	case old == nil:
		w.line.Named(pod.Namespace, pod.Name)
		w.line.Note(timeline.Entry{What: "seen", Detail: "source " + w.source})
	case old.Generation != pod.Generation && pod.DeletionTimestamp == nil:
		w.line.Note(timeline.Entry{What: "changed", Detail: fmt.Sprintf("generation %d", pod.Generation)})
	}
	if pod.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil) {
		detail := ""
		if g := pod.DeletionGracePeriodSeconds; g != nil {
			detail = fmt.Sprintf("grace period %d s", *g)
		}
		w.line.Note(timeline.Entry{What: "deletion was asked for", Detail: detail})
	}
}

func readyOf(st *v1.PodStatus) bool {
	c := podutil.Condition(st.Conditions, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
