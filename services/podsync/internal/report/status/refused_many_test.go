package status

import (
	"fmt"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
)

// TestManyContainersThatAreRefusedAreLookedAtOnceEach: all pods' statuses wait meanwhile.
func TestManyContainersThatAreRefusedAreLookedAtOnceEach(t *testing.T) {
	steps.Grow(t, func(n int) {
		e := &entry{}
		details := &metav1.StatusDetails{}
		for i := range n {
			name := fmt.Sprint("c", i)
			e.desired.ContainerStatuses = append(e.desired.ContainerStatuses, v1.ContainerStatus{Name: name, Image: "wanted"})
			e.known.ContainerStatuses = append(e.known.ContainerStatuses, v1.ContainerStatus{Name: name, Image: "had"})
			details.Causes = append(details.Causes, metav1.StatusCause{Field: fmt.Sprintf("status.containerStatuses[%d].state", i), Message: "no"})
		}
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Details: details}}
		found := refusalsIn(err, request{desired: e.desired, known: e.known})
		if fresh := e.refuseLocked(found); len(fresh) != n {
			t.Fatalf("%d of %d are refused", len(fresh), n)
		}
		if again := e.refuseLocked(found); len(again) != 0 {
			t.Fatalf("%d are refused once more", len(again))
		}
		owed := e.owedLocked()
		if len(owed.ContainerStatuses) != n || owed.ContainerStatuses[n-1].Image != "had" || len(e.refused) != n {
			t.Fatalf("owed are %d containers, %d are refused", len(owed.ContainerStatuses), len(e.refused))
		}
	})
}
