package worker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// held is what the Registry holds of one pod, all of it under the Registry's lock. The
// pod's worker has no way to it but the Registry's methods; what a worker is to know,
// its inbox is told.
type held struct {
	reg   *Registry
	uid   types.UID
	seq   uint64
	inbox *inbox
	// run lets the pod's worker work until life ends; working says that it does.
	run     func(life context.Context)
	working bool

	pod    *v1.Pod // newest that the source gave; nil for an orphan
	source string
	// gone: the source does not want it any more.
	gone bool
	// again is set when the source wants the pod anew while it is being ended.
	again       *v1.Pod
	againSource string
	// keptLogs: logs were left on the disk for the pod that comes back.
	keptLogs bool
	// keptBack: it is static, and an earlier one of its name has not ended.
	keptBack  bool
	admission podstate.Decision
	ending    *ending // nil unless the node ends it for a reason of its own
	// withMachine: it is static, and was stopped or rejected because the machine goes
	// down.
	withMachine bool
	leaves      time.Time // since when it is being stopped, for whatever reason
	preempted   bool      // for another pod's sake
	claiming    bool      // others are being stopped to make room for it
	stopped     bool      // nothing of it runs any more
	freed       bool      // it has nothing any more that another might need
	putOff      bool      // its start is put off; see putOff
	grant       grant
	// pendingSince is since when its resize waited in a previous run.
	pendingSince time.Time
}

// newHeld makes what the Registry holds of a pod, and the pod's worker.
func newHeld(r *Registry, uid types.UID, seq uint64) (*held, *worker) {
	in := newInbox()
	w := newWorker(r, uid, seq, in)
	return &held{reg: r, uid: uid, seq: seq, inbox: in, run: w.run}, w
}

// givePod tells the worker of a new version of the pod.
func (h *held) givePod(pod *v1.Pod) {
	source := h.source
	h.inbox.tell(func(in *told) { in.pod, in.source = pod, source })
}

// returnsLocked tells the worker whether the pod is wanted anew when it has ended.
func (h *held) returnsLocked() {
	returns := h.again != nil
	h.inbox.tell(func(in *told) { in.returns = &returns })
}
