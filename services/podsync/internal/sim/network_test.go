package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// networked checks one step of a sandbox's network: it comes when those of the
// pod's earlier sandboxes have gone, and goes by a stop, before the removal of
// its sandbox.
func (j *judge) networked(tr fakecri.Transition) {
	up := j.networks[tr.PodUID]
	if up == nil {
		up = map[string]bool{}
		j.networks[tr.PodUID] = up
	}
	switch {
	case tr.To == fakecri.Down && tr.Cause == "RemovePodSandbox":
		j.violationLocked("sandbox %s of pod %s was removed before it was stopped: its network was up", short(tr.ID), tr.Pod)
	case tr.To == fakecri.Up && len(up) > 0:
		j.violationLocked("pod %s got another sandbox while the network of %d before it is up", tr.Pod, len(up))
	}
	if delete(up, tr.ID); tr.To == fakecri.Up {
		up[tr.ID] = true
	} else if len(up) == 0 {
		j.disks.down[tr.PodUID] = time.Now()
	}
}

func short(id string) string { return id[:min(len(id), 12)] }

// strayNetwork says which network is up of a sandbox that nobody needs.
func strayNetwork(s fakecri.SandboxInfo) string {
	if s.Network && s.State != fakecri.Ready {
		return fmt.Sprintf("the network of sandbox %s of pod %s is up, though the sandbox does not stand", short(s.ID), s.Config.GetMetadata().GetName())
	}
	return ""
}

var errTeardown = errors.New(`plugin type="bridge" failed (delete): no answer`)

// teardown decides whether a network cannot be taken down this time. It follows
// from the seed, the sandbox and how often that was tried.
func (w *world) teardown(s fakecri.SandboxInfo, n int) error {
	if !w.noisy.Load() {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.ID))
	if rand.New(rand.NewPCG(uint64(w.seed), h.Sum64()+uint64(n))).Float64() < w.scenario.badTeardowns {
		return errTeardown
	}
	return nil
}

// killPause lets the process of a sandbox die, while its containers run on.
func (w *world) killPause(pick int) {
	var ready []fakecri.SandboxInfo
	for _, s := range w.rt.Snapshot().Sandboxes {
		if s.State == fakecri.Ready {
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return
	}
	s := ready[pick%len(ready)]
	w.judge.sandboxDied(s.Config.GetMetadata().GetUid())
	_ = w.rt.KillPause(s.ID)
}

// sandboxDied notes that the containers of a pod have no sandbox any more.
func (j *judge) sandboxDied(uid string) {
	j.disturb(uid)
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.owners[uid]; f != nil {
		f.reasons = append(f.reasons, reason{why: "its sandbox has died", at: now(), grace: f.sub.grace(), counts: now(), passing: true})
	}
}
