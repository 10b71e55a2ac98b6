// Package newest owns what a reflector is told when an apiserver calls even the newest
// version of a list too old: that it failed, and not that it is too old. client-go's
// reflector asks again for the newest then, without a pause and for ever (6000 times a
// second were seen). It must never change another answer.
package newest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Refused returns the error of a list or watch as a reflector is to see it.
func Refused(asked metav1.ListOptions, err error) error {
	if err == nil || asked.ResourceVersion != "" || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return err
	}
	return fmt.Errorf("the newest was asked for, and the apiserver says: %s", err.Error())
}
