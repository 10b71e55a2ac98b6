package newest

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyWhoAskedForTheNewestHearsThatItIsNotExpired(t *testing.T) {
	expired, other := apierrors.NewResourceExpired("too old"), errors.New("no route to host")
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone, Message: "gone"}}
	for _, err := range []error{expired, gone} {
		got := Refused(metav1.ListOptions{}, err)
		if got == nil || apierrors.IsResourceExpired(got) || apierrors.IsGone(got) {
			t.Errorf("%v of the newest is %v", err, got)
		}
		if got := Refused(metav1.ListOptions{ResourceVersion: "7"}, err); !errors.Is(got, err) {
			t.Errorf("%v of an old version is %v", err, got)
		}
	}
	if got := Refused(metav1.ListOptions{}, other); !errors.Is(got, other) {
		t.Errorf("%v is %v", other, got)
	}
	if got := Refused(metav1.ListOptions{}, nil); got != nil {
		t.Errorf("success is %v", got)
	}
}
