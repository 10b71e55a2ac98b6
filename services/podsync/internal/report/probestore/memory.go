package probestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
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

// remember asks Run to write when the pod is one whose results are kept. The
// lock is held.
func (b *Board) remember(pod *v1.Pod) {
	if b.deps.Memory == "" || pod == nil || !podutil.Static(pod) {
		return
	}
	b.wake()
}

func (b *Board) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Load reads what the last life of this process kept; call it before the first
// Set. A damaged file is set aside and reported, and its pods count as ready
// when their probes say so again.
func (b *Board) Load(log logr.Logger) {
	if b.deps.Memory == "" {
		return
	}
	m, err := fsatomic.NewCheckpoint[memory](b.deps.Memory).Read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err != nil:
		log.Error(err, "What was kept of the probes of static pods is lost; they count as ready when their probes succeed again, nothing is to be done")
		b.deps.Health.Set("probe results", false, err.Error())
		b.wake() // a sound one takes its place
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = m
}

// saveAgain is how long after a failure it is tried again to write.
const saveAgain = 30 * time.Second

// Run keeps the results of static pods on the disk until ctx is done. What
// cannot be written, on a full disk say, is tried again until it can.
func (b *Board) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.changed:
		case <-again:
		}
		err := b.save()
		if err == nil {
			again = nil
			b.deps.Health.Set("probe results", true, "")
			continue
		}
		if again == nil {
			log.Error(err, "Could not keep the probe results of static pods; after a restart of podsync they count as ready only when their probes succeed again; it is tried again", "every", saveAgain.String())
		}
		again = time.After(saveAgain)
		b.deps.Health.Set("probe results", false, err.Error())
	}
}

func (b *Board) save() error {
	if err := os.MkdirAll(filepath.Dir(b.deps.Memory), 0o750); err != nil {
		return fmt.Errorf("keep probe results: %w; check that the disk is writable", err)
	}
	if err := fsatomic.NewCheckpoint[memory](b.deps.Memory).Write(b.snapshot()); err != nil {
		return fmt.Errorf("keep probe results in %s: %w; check that the disk has room", b.deps.Memory, err)
	}
	return nil
}

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
