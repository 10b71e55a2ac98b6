package contract

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var deleteCases = []Case{
	{"a pod on a node is deleted in two steps", func(k *kit) {
		p := k.pod("graceful", "n1")
		k.works("delete", k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{}))
		got := k.get("graceful")
		k.equal("grace", *got.DeletionGracePeriodSeconds, int64(30))
		k.equal("generation", got.Generation, int64(2))
		left := time.Until(got.DeletionTimestamp.Time)
		k.equal("the time is ahead", left > 25*time.Second && left <= 31*time.Second, true)
		long, short := int64(60), int64(5)
		k.works("delete with more time", k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{GracePeriodSeconds: &long}))
		k.equal("grace after asking for more", *k.get("graceful").DeletionGracePeriodSeconds, int64(30))
		k.works("delete with less time", k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{GracePeriodSeconds: &short}))
		got = k.get("graceful")
		k.equal("grace after asking for less", *got.DeletionGracePeriodSeconds, int64(5))
		left = time.Until(got.DeletionTimestamp.Time)
		k.equal("the time is nearer", left <= 6*time.Second, true)
		zero, other := int64(0), types.UID("other")
		err := k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &other}})
		k.is("delete of another UID", err, apierrors.IsConflict)
		k.works("final delete", k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}}))
		_, err = k.pods.Get(k.ctx, "graceful", metav1.GetOptions{})
		k.is("get", err, apierrors.IsNotFound)
		k.is("delete of what is gone", k.pods.Delete(k.ctx, "graceful", metav1.DeleteOptions{}), apierrors.IsNotFound)
	}},
	{"a pod without a node, and one that has finished, go at once", func(k *kit) {
		k.pod("unbound", "")
		k.works("delete", k.pods.Delete(k.ctx, "unbound", metav1.DeleteOptions{}))
		_, err := k.pods.Get(k.ctx, "unbound", metav1.GetOptions{})
		k.is("get", err, apierrors.IsNotFound)
		k.pod("finished", "n1")
		_, err = k.patchStatus("finished", `{"status":{"phase":"Succeeded"}}`)
		k.works("patch", err)
		k.works("delete", k.pods.Delete(k.ctx, "finished", metav1.DeleteOptions{}))
		_, err = k.pods.Get(k.ctx, "finished", metav1.GetOptions{})
		k.is("get", err, apierrors.IsNotFound)
	}},
	{"a finalizer holds the last step back", func(k *kit) {
		k.pod("held", "n1")
		_, err := k.pods.Patch(k.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
		k.works("patch", err)
		zero := int64(0)
		k.works("delete", k.pods.Delete(k.ctx, "held", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
		got := k.get("held")
		k.equal("marked", got.DeletionTimestamp != nil && *got.DeletionGracePeriodSeconds == 0, true)
		_, err = k.pods.Patch(k.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		k.works("patch", err)
		_, err = k.pods.Get(k.ctx, "held", metav1.GetOptions{})
		k.is("get", err, apierrors.IsNotFound)
	}},
}

func (k *kit) get(name string) *corev1.Pod {
	k.t.Helper()
	p, err := k.pods.Get(k.ctx, name, metav1.GetOptions{})
	if err != nil {
		k.t.Fatalf("get pod %s: %v", name, err)
	}
	return p
}
