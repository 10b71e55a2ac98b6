package newest

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAWatchIsRefusedFromAVersionThatTheDataHaveNotComeTo(t *testing.T) {
	for _, c := range []struct {
		name, from, now string
		failed          error
		expired         bool
		asked           int
		seconds         int64
	}{
		{"the newest", "", "5", nil, false, 0, 600},
		{"any", "0", "5", nil, false, 0, 600},
		{"before", "4", "5", nil, false, 1, 600},
		{"now", "5", "5", nil, false, 1, 600},
		{"after", "10", "9", nil, true, 1, 600},
		{"no number", "x", "9", nil, false, 1, 600},
		{"no version", "10", "", nil, false, 1, 600},
		{"no answer", "10", "", errors.New("refused"), false, 1, unsureSeconds},
	} {
		asked, seconds := 0, int64(600)
		o := metav1.ListOptions{ResourceVersion: c.from, FieldSelector: "spec.nodeName=n", TimeoutSeconds: &seconds}
		err := Restored(t.Context(), &o, func(ctx context.Context, l metav1.ListOptions) (*v1.PodList, error) {
			if _, bound := ctx.Deadline(); !bound || l.ResourceVersion != "" || l.Limit != 1 || l.FieldSelector != "metadata.name=-,"+o.FieldSelector {
				t.Errorf("%s: asked with %+v, in time %v", c.name, l, bound)
			}
			asked++
			return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: c.now}}, c.failed
		})
		if apierrors.IsResourceExpired(err) != c.expired || (err != nil) != c.expired || asked != c.asked || *o.TimeoutSeconds != c.seconds {
			t.Errorf("%s: %v, asked %d times, then %d s", c.name, err, asked, *o.TimeoutSeconds)
		}
	}
}
