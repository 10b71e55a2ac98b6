package growth

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// AtMount has a volume grown that has just been mounted for a pod, if it is larger than
// its claim says, and from then on while pods use it. The pod must not use it before it is
// grown, unless its driver does not grow what is in use.
func (g *Volumes) AtMount(ctx context.Context, v Volume, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	st, err := g.enter(ctx, pv.Name, v)
	if err != nil {
		return err
	}
	defer func() { <-st.turn }()
	said := *claims.Size(claim)
	if st.size.IsZero() {
		st.size = said
	}
	// The claim may be older than what was done for another pod, for which this one waited.
	if size := pv.Spec.Capacity[v1.ResourceStorage]; said.Cmp(size) < 0 && st.size.Cmp(size) < 0 {
		switch {
		case v.ReadOnly:
			g.tell(v.Pod, claim, v1.EventTypeWarning, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", pv.Name))
		case !st.inUse:
			if err := g.grow(ctx, st, v, claim, pv.Name, size); err != nil {
				return err
			}
		}
	}
	g.follow(ctx, pv.Name, claim)
	return nil
}

// whileUsed has a volume grown that pods use.
func (g *Volumes) whileUsed(ctx context.Context, st *state, v Volume, claim *v1.PersistentVolumeClaim) error {
	if st.inUse || st.size.IsZero() || v.ReadOnly {
		return nil
	}
	pv, err := g.deps.Claims.PersistentVolume(ctx, v.Pod.UID, v.Pod.Namespace, claim.Spec.VolumeName)
	if err != nil {
		return err
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	if size.Cmp(st.size) <= 0 {
		return nil
	}
	if err := g.grow(ctx, st, v, claim, pv.Name, size); err != nil {
		g.deps.Events.Pod(v.Pod, v1.EventTypeWarning, "VolumeResizeFailed", fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err))
		return err
	}
	return nil
}

// grow has a volume grown if the claim lets that be; the caller has the volume's turn.
// No error says that it has the size, or that this is not the node's to bring about now.
func (g *Volumes) grow(ctx context.Context, st *state, v Volume, claim *v1.PersistentVolumeClaim, pv string, size resource.Quantity) error {
	what := claims.Grow(claim, size, st.failed)
	if what.Has {
		st.size = what.To
	}
	if !what.Ask {
		return nil
	}
	if what.Recovers && !what.Told {
		now, err := g.deps.Status.Write(ctx, claim, claims.Begun(claim), true)
		if err != nil {
			return err
		}
		claim = now
	}
	if err := v.Grow(ctx, what.To); err != nil {
		return g.notGrown(ctx, st, claim, what, err)
	}
	st.size, st.failed = what.To, false
	g.tell(v.Pod, claim, v1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", pv, v.Pod.Spec.NodeName))
	if what.Told {
		return nil
	}
	if _, err := g.deps.Status.Write(ctx, claim, claims.Grown(claim, what.To), true); err != nil {
		st.size = *claims.Size(claim) // again, which changes nothing of the volume
		return fmt.Errorf("mountVolume.NodeExpandVolume update pvc status failed: %w", err)
	}
	return nil
}

// notGrown does what is to be done about a volume that could not be grown.
func (g *Volumes) notGrown(ctx context.Context, st *state, claim *v1.PersistentVolumeClaim, what claims.Growth, why error) error {
	kind := Kind(0)
	if known := (*Error)(nil); errors.As(why, &known) {
		kind = known.Kind
	}
	if kind == Unsupported && (what.Told || !what.Recovers) {
		st.size = what.To // nobody need do anything on this node
		return nil
	}
	if what.Recovers && kind != Away {
		final := kind != Uncertain
		st.failed = st.failed || final
		infeasible := kind == Infeasible || final && what.LetGo
		if _, err := g.deps.Status.Write(ctx, claim, claims.NotGrown(claim, why, infeasible, metav1.Now()), false); err != nil {
			klog.FromContext(ctx).Info("A claim does not say that its volume could not be grown", "object", klog.KObj(claim), "err", err)
		}
	}
	if kind == InUse {
		st.inUse = true
		klog.FromContext(ctx).Info("A volume is not grown on this node while it is in use", "object", klog.KObj(claim), "err", why)
		return nil
	}
	return why
}

// tell records an event on a pod and on its claim.
func (g *Volumes) tell(pod *v1.Pod, claim *v1.PersistentVolumeClaim, eventType, reason, message string) {
	g.deps.Events.Pod(pod, eventType, reason, message)
	g.deps.Events.Claim(claim, eventType, reason, message)
}
