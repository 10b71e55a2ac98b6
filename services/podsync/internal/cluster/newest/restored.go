package newest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// answeredWithin bounds the question for the version of now.
	answeredWithin = 10 * time.Second
	// unsureSeconds is how long a watch lasts, in seconds, when that had no answer.
	unsureSeconds = int64(30)
	// noObject selects what there is not: such a name is not valid.
	noObject = "metadata.name=-"
)

// Restored returns an error, as of a version that is too old, when a watch is to go on from
// a version that the data have not come to. An apiserver takes such a watch, and sends
// nothing until they have: not what is there, nor what changes. list, of a namespace, is
// asked for one name, for the version of now, which is never below one that was seen: an
// apiserver whose cache is behind looks for that in etcd, and so not among all objects.
// Without its answer the watch is made short, so that it is soon asked again.
func Restored[L metav1.ListInterface](ctx context.Context, watch *metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error)) error {
	from := watch.ResourceVersion
	if from == "" || from == "0" {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	answer, err := list(asking, metav1.ListOptions{FieldSelector: noObject + "," + watch.FieldSelector, LabelSelector: watch.LabelSelector, Limit: 1})
	if err != nil {
		short := unsureSeconds
		watch.TimeoutSeconds = &short
		return nil // The watch finds out itself what is the matter.
	}
	now := answer.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(now, from); err != nil || order >= 0 {
		return nil
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("version %s was seen, and the apiserver's data are at %s: etcd was restored", from, now))
}
