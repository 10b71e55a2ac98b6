package claims

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Growth is what is to be done on the node about a volume that is larger than it was.
// Source: KEP-284 and KEP-1790 (RecoverVolumeExpansionFailure), and the words of
// PersistentVolumeClaim.status.allocatedResourceStatuses.
type Growth struct {
	// To is the size that the volume is to have.
	To resource.Quantity
	// Ask: its driver is to be asked. Else Has says whether it has the size already; if
	// it has not, that is somebody else's to bring about.
	Ask, Has bool
	// Told: the claim says the size already; another node may have grown the volume.
	Told bool
	// Recovers: the claim's status says how the growing goes on.
	Recovers bool
	// LetGo: what fails now is not tried again, for the claim wants another size
	// meanwhile.
	LetGo bool
}

// nodeExpansionNotRequired is the annotation of a claim whose volume need not be grown on
// each of its nodes.
const nodeExpansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// Grow says what is to be done about a volume that has a larger size than it was mounted
// with. failed: that was tried, and failed with a final error.
func Grow(claim *v1.PersistentVolumeClaim, size resource.Quantity, failed bool) Growth {
	status, allocated := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage], claim.Status.AllocatedResources
	if status == "" && allocated == nil { // a controller from before KEP-1790
		return Growth{To: size, Ask: true, Told: Size(claim).Cmp(size) >= 0}
	}
	g := Growth{To: size, Recovers: true}
	if to, has := allocated[v1.ResourceStorage]; has {
		g.To = to
	}
	wanted := claim.Spec.Resources.Requests[v1.ResourceStorage]
	g.LetGo = failed && wanted.Cmp(g.To) != 0
	g.Told = status == "" && Size(claim).Cmp(g.To) >= 0
	switch {
	case g.Told:
		_, notHere := claim.Annotations[nodeExpansionNotRequired]
		g.Ask = !notHere && slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany)
		g.Has = !g.Ask
	case status == v1.PersistentVolumeClaimNodeResizePending, status == v1.PersistentVolumeClaimNodeResizeInProgress:
		g.Ask = true
	}
	return g
}

// Size is how large a claim says that its volume is; zero when it does not.
func Size(claim *v1.PersistentVolumeClaim) *resource.Quantity { return claim.Status.Capacity.Storage() }

// Growing says whether a claim is on its way to another size, as far as it is known.
func Growing(claim *v1.PersistentVolumeClaim) bool {
	status := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	if status == v1.PersistentVolumeClaimNodeResizeInfeasible || status == v1.PersistentVolumeClaimControllerResizeInfeasible {
		return false
	}
	return status != "" || claim.Spec.Resources.Requests.Storage().Cmp(*Size(claim)) > 0
}

// Begun is a claim whose volume is being grown on the node.
func Begun(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	return withResize(claim, v1.PersistentVolumeClaimNodeResizeInProgress)
}

// Grown is a claim whose volume has a new size.
func Grown(claim *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	if c.Status.Capacity == nil {
		c.Status.Capacity = v1.ResourceList{}
	}
	c.Status.Capacity[v1.ResourceStorage] = size
	delete(c.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	if len(c.Status.AllocatedResourceStatuses) == 0 {
		c.Status.AllocatedResourceStatuses = nil
	}
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(o v1.PersistentVolumeClaimCondition) bool {
		switch o.Type {
		case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
			v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
	return c
}

// NotGrown is a claim whose volume could not be grown; infeasible: and nobody tries that
// again before the controller has had another look.
func NotGrown(claim *v1.PersistentVolumeClaim, why error, infeasible bool, now metav1.Time) *v1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	if infeasible {
		c = withResize(claim, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	said := v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: now,
		Message: fmt.Sprintf("failed to expand pvc with %v", why),
	}
	at := slices.IndexFunc(c.Status.Conditions, func(o v1.PersistentVolumeClaimCondition) bool { return o.Type == said.Type })
	switch {
	case at < 0:
		c.Status.Conditions = append(c.Status.Conditions, said)
	case c.Status.Conditions[at].Status != said.Status:
		c.Status.Conditions[at] = said
	}
	return c
}

func withResize(claim *v1.PersistentVolumeClaim, status v1.ClaimResourceStatus) *v1.PersistentVolumeClaim {
	c := claim.DeepCopy()
	if c.Status.AllocatedResourceStatuses == nil {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = status
	return c
}
