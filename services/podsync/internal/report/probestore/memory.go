package probestore

import (
	"context"

	"github.com/go-logr/logr"
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

// failedLocked notes a result for which its container is killed; false when it is none.
func (b *Board) failedLocked(uid types.UID, key podstate.ProbeKey, r podstate.ProbeResult) bool {
	if r.Success || key.Type == podstate.Readiness {
		return false
	}
	if b.failures[uid] == nil {
		b.failures[uid] = map[podstate.ProbeKey]string{}
	}
	b.failures[uid][key] = r.ContainerID
	return true
}

// newFile is the checkpoint of static pods' results.
func (b *Board) newFile() *checkpoint.Keeper[memory] {
	return checkpoint.New(checkpoint.Config{
		File: b.deps.Memory, What: "probe results", Health: b.deps.Health,
		Lost:   "What was kept of the probes is lost; static pods count as ready when their probes succeed again, and of a container that a probe has killed meanwhile its exit decides whether it starts again; nothing is to be done",
		Unkept: "Could not keep the probes' results; after a restart of podsync static pods count as ready only when their probes succeed again",
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

// Run keeps the results of static pods, and those that have killed a container, on the
// disk until ctx is done. What
// cannot be written, on a full disk say, is tried again until it can.
func (b *Board) Run(ctx context.Context) error { return b.file.Run(ctx) }

// snapshot is what is to be kept: of static pods with targets what is known now, of pods
// that have not come yet what was kept before, and why containers are killed.
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
			if b.failures[uid][key] != result.ContainerID { // else it is among those
				m[uid] = append(m[uid], kept{Container: key.Container, Type: key.Type, ContainerID: result.ContainerID, Success: result.Success})
			}
		}
	}
	for uid, failed := range b.failures {
		for key, id := range failed {
			m[uid] = append(m[uid], kept{Container: key.Container, Type: key.Type, ContainerID: id})
		}
	}
	return m
}
