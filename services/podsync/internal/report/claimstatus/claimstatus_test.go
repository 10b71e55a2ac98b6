package claimstatus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestTheStatusOfAClaimIsWritten(t *testing.T) {
	server := fakeapiserver.New(fakeapiserver.Config{Seed: 1})
	defer server.Close()
	all := server.Admin().CoreV1().PersistentVolumeClaims("ns")
	claim, err := all.Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := New(server.Client().CoreV1())
	begun := claim.DeepCopy()
	begun.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	begun.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizeInProgress}
	begun.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: v1.PersistentVolumeClaimResizing, Status: v1.ConditionTrue}, {Type: "Other", Status: v1.ConditionTrue},
	}
	begun.Labels = map[string]string{"not": "written"}
	now, err := w.Write(t.Context(), claim, begun, true)
	if err != nil || now.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInProgress || len(now.Status.Conditions) != 2 || now.Labels != nil {
		t.Fatalf("%+v, %v", now, err)
	}
	if same, err := w.Write(t.Context(), now, now.DeepCopy(), true); err != nil || same.ResourceVersion != now.ResourceVersion {
		t.Errorf("it was written though nothing is new: %v", err)
	}
	over := now.DeepCopy()
	over.Status.Conditions, over.Status.AllocatedResourceStatuses = over.Status.Conditions[1:], nil
	if _, err := w.Write(t.Context(), claim, over, true); !apierrors.IsConflict(err) {
		t.Errorf("a claim that somebody has changed meanwhile: %v", err)
	}
	if now, err = w.Write(t.Context(), now, over, true); err != nil || len(now.Status.Conditions) != 1 || now.Status.Conditions[0].Type != "Other" || len(now.Status.AllocatedResourceStatuses) != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := w.Write(t.Context(), claim, begun, false); err != nil {
		t.Errorf("whatever has become of it: %v", err)
	}
	other := claim.DeepCopy()
	other.UID = "another claim of this name"
	if _, err := w.Write(t.Context(), other, begun, false); err == nil {
		t.Error("another claim of this name was written")
	}
}
