package worker

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// attachmentLimit is the reason of pods whose volumes the node has no room for.
const attachmentLimit = "VolumeAttachmentLimitExceeded"

// unattachable rejects a pod that waits for a volume which the node has no room for. One
// that goes on to wait says so.
// Source: KEP-4876
func (w *worker) unattachable(o outcome) {
	failed := (podstate.VolumeErrors)(nil)
	if o.cancelled || !errors.As(o.err, &failed) || w.state.Unwanted() {
		return
	}
	message, is := failed.Unattachable()
	if is && !w.state.MayBeElsewhere() {
		w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, failed.EventReason(), failed.Error())
		return
	}
	if !is || !w.reg.reject(w.uid, podstate.Stop{Reason: attachmentLimit, Message: "Pod was rejected: " + message}) {
		return
	}
	w.log.Info("Pod was rejected", "reason", attachmentLimit, "message", short(message, mostLogged))
	w.reg.deps.Events.Pod(w.state.Pod, v1.EventTypeWarning, attachmentLimit, message)
	w.reg.deps.Metrics.rejected(attachmentLimit)
}

// reject ends a pod that was admitted; false when it is being ended already. Its worker
// keeps that before it acts upon it.
func (r *Registry) reject(uid types.UID, stop podstate.Stop) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.pods[uid]
	if h == nil || h.pod == nil || h.ending != nil || h.stopped {
		return false
	}
	h.stopLocked(stop, false)
	return true
}
