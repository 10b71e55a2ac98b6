package notice

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/desired/source"
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

// Troubles says what explain cannot see in a pod. Safe for concurrent use.
type Troubles struct {
	Statuses Statuses
	Sources  Sources
}

// Of says why the apiserver does not have a pod's status, or the pod not what
// its manifest says; nil when nothing of that is so.
func (t Troubles) Of(uid types.UID) *explain.Trouble {
	sent, unwritten := t.Statuses.Trouble(uid)
	stale, old := t.Sources.Stale(uid)
	if !unwritten && !old {
		return nil
	}
	out := &explain.Trouble{Away: sent.Away, Since: sent.Since, Retry: sent.Retry}
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
