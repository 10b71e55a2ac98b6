package probestore

import (
	"context"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/checkpoint"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// memory is what the file holds: results by pod.
type memory map[types.UID][]kept

// kept is one result.
type kept struct {
	Container   string             `json:"container"`
	Type        podstate.ProbeType `json:"type"`
	ContainerID string             `json:"containerID"`
	Success     bool               `json:"success"`
}

// results returns what is kept of one pod; never nil.
func (m memory) results(uid types.UID) map[podstate.ProbeKey]podstate.ProbeResult {
	out := map[podstate.ProbeKey]podstate.ProbeResult{}
	for _, k := range m[uid] {
		out[podstate.ProbeKey{Container: k.Container, Type: k.Type}] = podstate.ProbeResult{ContainerID: k.ContainerID, Success: k.Success}
	}
	return out
}

// rememberLocked asks Run to write when the pod is one whose results are kept.
func (b *Board) rememberLocked(pod *v1.Pod) {
	if pod != nil && podutil.Static(pod) {
		b.file.Changed()
	}
}

// newFile is the checkpoint of static pods' results.
func (b *Board) newFile() *checkpoint.Keeper[memory] {
	return checkpoint.New(checkpoint.Config{
		File: b.deps.Memory, What: "probe results", Health: b.deps.Health,
		Lost:   "What was kept of the probes of static pods is lost; they count as ready when their probes succeed again, nothing is to be done",
		Unkept: "Could not keep the probe results of static pods; after a restart of podsync they count as ready only when their probes succeed again",
	}, b.snapshot)
}

// Load reads what the last run of this process kept; call it before the first
// Set. A damaged file is set aside and reported, and its pods count as ready
// when their probes say so again.
func (b *Board) Load(log logr.Logger) {
	m, ok := b.file.Load(log)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = m
}

// Run keeps the results of static pods on the disk until ctx is done. What
// cannot be written, on a full disk say, is tried again until it can.
func (b *Board) Run(ctx context.Context) error { return b.file.Run(ctx) }

// snapshot is what is to be kept: of pods with targets what is known now, and
// of pods that have not come yet what was kept before.
func (b *Board) snapshot() memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := memory{}
	for uid, old := range b.kept {
		m[uid] = old
	}
	for uid, r := range b.pods {
		if r.pod == nil || !podutil.Static(r.pod) {
			continue
		}
		for key, result := range r.results {
			m[uid] = append(m[uid], kept{Container: key.Container, Type: key.Type, ContainerID: result.ContainerID, Success: result.Success})
		}
	}
	return m
}
