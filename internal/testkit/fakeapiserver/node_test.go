package fakeapiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestANodeMayNotChangeItsOwners(t *testing.T) {
	s := New(Config{Seed: 1})
	defer s.Close()
	nodes, owned := s.Client().CoreV1().Nodes(), []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "u"}}
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: owned}}, metav1.CreateOptions{})
	forbidden("create", err)
	n, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.OwnerReferences = owned
	_, err = nodes.Update(t.Context(), n, metav1.UpdateOptions{})
	forbidden("update", err)
	_, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	forbidden("update of the status", err)
	patch := []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"gone","uid":"u"}]}}`)
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		_, err = nodes.Patch(t.Context(), "n", kind, patch, metav1.PatchOptions{})
		forbidden("patch "+string(kind), err)
	}
	// Others may, and the node's own writes go on then.
	if _, err := s.Admin().CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if after, err := nodes.Patch(t.Context(), "n", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil || len(after.OwnerReferences) != 1 {
		t.Errorf("%v, %v", after, err)
	}
}
