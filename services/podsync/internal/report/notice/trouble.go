package notice

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/explain"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
)

// Statuses know what the apiserver does not have; *status.Writer has it.
type Statuses interface {
	Trouble(uid types.UID) (status.Trouble, bool)
}

// Sources know which manifests cannot be used; *source.Sources has it.
type Sources interface {
	Stale(uid types.UID) (source.Stale, bool)
}

// Volumes know which volumes pods go on with though they are not up to date; *volume.Stale has it.
type Volumes interface {
	Of(uid types.UID) []podstate.StaleVolume
}

// Troubles says what explain cannot see in a pod. Safe for concurrent use.
type Troubles struct {
	Statuses Statuses
	Sources  Sources
	Volumes  Volumes
}

// Of says why the apiserver does not have a pod's status, the pod not what its
// manifest says, or its volumes not what they should; nil when nothing of that is so.
func (t Troubles) Of(uid types.UID) *explain.Trouble {
	sent, unwritten := t.Statuses.Trouble(uid)
	stale, old := t.Sources.Stale(uid)
	volumes := t.Volumes.Of(uid)
	if !unwritten && !old && len(volumes) == 0 {
		return nil
	}
	out := &explain.Trouble{Volumes: volumes, Away: sent.Away, Since: sent.Since, Retry: sent.Retry}
	if old {
		out.Manifest, out.ManifestSince = stale.Err.Error(), stale.Since
	}
	if sent.Err != nil {
		out.Message = sent.Err.Error()
	}
	for _, r := range sent.Refused {
		out.Refused = append(out.Refused, explain.RefusedPart{Part: r.Part.String(), Container: r.Container, Why: r.Why, Since: r.Since})
	}
	return out
}
