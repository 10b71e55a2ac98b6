// Package claimstatus tells the apiserver what became of a claim's volume on this node.
//
// It owns the writes of the status of claims (PersistentVolumeClaim). It must never
// decide what stands there, and never write anything else of a claim.
package claimstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// timeout of one write.
const timeout = 10 * time.Second

// Writer writes the status of claims; safe for concurrent use.
type Writer struct {
	client typedv1.PersistentVolumeClaimsGetter
}

// New makes a Writer.
func New(client typedv1.PersistentVolumeClaimsGetter) *Writer { return &Writer{client} }

// Write has the status of a claim be another than it was, and returns the claim as it is
// then. only: unless somebody has changed the claim meanwhile. Of newer fields, which this
// build does not know, nothing is lost.
func (w *Writer) Write(ctx context.Context, was, is *v1.PersistentVolumeClaim, only bool) (*v1.PersistentVolumeClaim, error) {
	if equality.Semantic.DeepEqual(was.Status, is.Status) {
		return was, nil
	}
	data, err := patch(was, is, only)
	if err != nil {
		return was, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, err := w.client.PersistentVolumeClaims(was.Namespace).Patch(ctx, was.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return was, fmt.Errorf("patchPVCStatus failed to patch PVC %q: %w", was.Name, err)
	}
	return now, nil
}

// patch makes the one claim the other.
func patch(was, is *v1.PersistentVolumeClaim, only bool) ([]byte, error) {
	from, err := json.Marshal(v1.PersistentVolumeClaim{Status: was.Status})
	if err != nil {
		return nil, err
	}
	to := v1.PersistentVolumeClaim{Status: is.Status}
	to.UID = was.UID // that of another claim of the name is not changed
	if only {
		to.ResourceVersion = was.ResourceVersion
	}
	into, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(from, into, v1.PersistentVolumeClaim{})
}
