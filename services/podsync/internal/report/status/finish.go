package status

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Finish waits until the status that was set last is accepted, then deletes
// the pod's object with grace period 0 if it still has this UID. An object that
// is gone already is success. For a static pod, or with no apiserver, nothing
// is deleted. It tries once; the caller retries.
func (w *Writer) Finish(ctx context.Context, pod *v1.Pod) error {
	if w.deps.Client == nil || podutil.Static(pod) {
		return nil
	}
	gone, err := w.settle(ctx, pod.UID)
	if err != nil {
		return fmt.Errorf("delete pod %s (uid %s): wait until its final status is accepted: %w", klog.KObj(pod), pod.UID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	if gone {
		return w.reallyGone(ctx, pod)
	}
	none := int64(0)
	uid := pod.UID
	err = answer.Deleted(w.deps.Client.CoreV1().RESTClient().Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Body(&metav1.DeleteOptions{
		GracePeriodSeconds: &none,
		Preconditions:      &metav1.Preconditions{UID: &uid},
	}).Do(ctx), uid)
	if apierrors.IsNotFound(err) || errors.Is(err, answer.ErrNotSaid) {
		err = w.stored(ctx, pod, err)
	} else if err != nil && isGone(err) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s (uid %s): %w", klog.KObj(pod), pod.UID, err)
	}
	klog.FromContext(ctx).V(2).Info("Pod deleted from the apiserver", "pod", klog.KObj(pod), "podUID", pod.UID)
	return nil
}

// reallyGone makes sure that an object is gone to which no status could be written: what
// is there is not deleted before it says how the pod has ended.
func (w *Writer) reallyGone(ctx context.Context, pod *v1.Pod) error {
	err := w.stored(ctx, pod, errors.New("its status is not written, for there is no such pod"))
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[pod.UID]; e != nil {
		e.gone = ""
		w.lookLocked(e)
	}
	return fmt.Errorf("delete pod %s (uid %s): %w", klog.KObj(pod), pod.UID, err)
}

// stored is said when a deletion has found no such object: an error while it is in
// the apiserver's store all the same. One that has just started has caches that know
// nothing yet, and NodeRestriction asks those. Pods of this node are listed since a
// node may not ask for one that is not there.
func (w *Writer) stored(ctx context.Context, pod *v1.Pod, said error) error {
	list, err := w.deps.Client.CoreV1().Pods(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"spec.nodeName": pod.Spec.NodeName, "metadata.name": pod.Name}.String(),
	})
	if err := answer.List(list, err); err != nil {
		return fmt.Errorf("it may be there though the apiserver says %q: look: %w", said.Error(), err)
	}
	if slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return p.UID == pod.UID }) {
		return fmt.Errorf("it is there though the apiserver says: %w", said)
	}
	return nil
}

// settle waits until the newest status of a pod is accepted or needed no more. gone says
// that it could not be written, for its object is said to be gone.
func (w *Writer) settle(ctx context.Context, uid types.UID) (gone bool, err error) {
	for {
		w.mu.Lock()
		e := w.entries[uid]
		settled := e == nil || e.version == 0 || e.accepted == e.version || e.knownOf == uid && over(e.owedLocked(), e.known)
		if gone := !settled && e.gone == uid; settled || gone {
			w.mu.Unlock()
			return gone, nil
		}
		e.urgent = true
		changed := make(chan struct{})
		e.waiters = append(e.waiters, changed)
		w.lookLocked(e)
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
