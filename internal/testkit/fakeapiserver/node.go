package fakeapiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// checkOwners refuses a node's change of the owners of a Node; old is nil at its
// creation. A node could have itself deleted by that, and come back without its
// taints and labels.
// Source: CVE-2025-5187; the admission plugin NodeRestriction.
func checkOwners(q *request, old, obj runtime.Object) error {
	if q.admin || q.res.name != "nodes" {
		return nil
	}
	owners := metaOf(obj).GetOwnerReferences()
	if old == nil && len(owners) == 0 || old != nil && equality.Semantic.DeepEqual(owners, metaOf(old).GetOwnerReferences()) {
		return nil
	}
	return apierrors.NewForbidden(q.gr(), metaOf(obj).GetName(), fmt.Errorf("node %q is not allowed to modify ownerReferences", metaOf(obj).GetName()))
}
