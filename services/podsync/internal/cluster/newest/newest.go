// Package newest owns what a reflector is told of versions that an apiserver has not got.
// When even the newest version of a list is too old, that it failed, and not that it is
// too old: client-go's reflector asks again for the newest then, without a pause and for
// ever (6000 times a second were seen). When the data have not come to the version that
// a watch is to go on from, that it is too old: etcd was restored from before, and the
// watch would bring nothing. It must never change another answer.
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
