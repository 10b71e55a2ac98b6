package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// lookLocked starts work on a name unless some is going on, which then goes round once
// more.
func (k *Keeper) lookLocked(name types.NamespacedName, e *entry) {
	if k.ctx == nil {
		return
	}
	if e.busy {
		return
	}
	if !k.due(e) {
		e.stopRetry()
		if e.static == nil && e.mirror == nil {
			delete(k.names, name)
		}
		if e.problem != "" { // what could not be done is not wanted any more
			e.problem = ""
			ctx := k.ctx
			k.idle.Go(func() { k.report(ctx) })
		}
		return
	}
	if e.retry != nil && e.tries > 0 {
		return
	}
	e.stopRetry()
	e.busy = true
	k.idle.Add(1)
	go k.work(k.ctx, name, e)
}

// due says whether anything is to be done for a name.
func (k *Keeper) due(e *entry) bool {
	switch {
	case !k.mirrorsReady:
		return false
	case e.static == nil:
		return e.mirror != nil && k.staticReady && k.known && !k.orphans[types.UID(e.mirror.Annotations[podutil.AnnotationMirror])]
	case e.leaving:
		return e.mirror != nil && e.mirror.DeletionTimestamp != nil
	default:
		return !e.shown()
	}
}

// work does one request for a name.
func (k *Keeper) work(ctx context.Context, name types.NamespacedName, e *entry) {
	defer k.idle.Done()
	k.mu.Lock()
	static, mirror := e.static, e.mirror
	if e.leaving {
		static = nil
	}
	k.mu.Unlock()

	var made *v1.Pod
	var err error
	if mirror != nil {
		err = k.delete(ctx, mirror, static)
	} else if static != nil {
		made, err = k.create(ctx, static)
	}
	k.tell(k.done(ctx, name, e, mirror, made, err))
	k.report(ctx)
}

// report tells health what is wrong with the mirrors. One says it at a time, so that
// what is said last is how it is.
func (k *Keeper) report(ctx context.Context) {
	k.reporting.Lock()
	defer k.reporting.Unlock()
	if ctx.Err() == nil {
		problem := k.problem()
		k.deps.Health.Set("mirror pods", problem == "", problem)
	}
}

// problem says what is wrong with any mirror, and of how many; empty when all are right.
func (k *Keeper) problem() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, n := "", 0
	for _, e := range k.names {
		if e.problem == "" {
			continue
		}
		if n++; text == "" || e.problem < text {
			text = e.problem
		}
	}
	if n > 1 {
		text = fmt.Sprintf("%s (and %d other mirrors that are not right)", text, n-1)
	}
	return text
}

// done takes in how a request ended, and returns the static pod to tell of.
func (k *Keeper) done(ctx context.Context, name types.NamespacedName, e *entry, deleted, made *v1.Pod, err error) types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.busy = false
	if err != nil {
		if ctx.Err() == nil && err.Error() != e.problem {
			e.problem = err.Error()
			klog.FromContext(ctx).Error(err, "Mirror pod is not right yet, trying again; the static pod itself is not affected", "pod", klog.KRef(name.Namespace, name.Name))
		}
		e.tries++
		k.retryLater(name, e)
		return ""
	}
	e.tries, e.problem = 0, ""
	changed := types.UID("")
	switch {
	case deleted != nil:
		delete(k.mirrors, deleted.UID)
		e.gone = deleted.UID
		if e.mirror != nil && e.mirror.UID == deleted.UID {
			e.mirror = nil
		}
	case made != nil && e.mirror == nil && e.gone != made.UID:
		e.mirror = made
		k.mirrors[made.UID] = name
		changed = e.staticUID()
	}
	k.lookLocked(name, e)
	return changed
}

func (k *Keeper) retryLater(name types.NamespacedName, e *entry) {
	if k.ctx == nil {
		return
	}
	delay := firstRetry
	for range min(e.tries-1, 10) {
		delay = min(2*delay, lastRetry)
	}
	e.stopRetry()
	var self *time.Timer
	self = time.AfterFunc(delay, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if e.retry == self {
			e.retry = nil
			k.lookLocked(name, e)
		}
	})
	e.retry = self
}

func (e *entry) stopRetry() {
	if e.retry != nil {
		e.retry.Stop()
		e.retry = nil
	}
}

// delete removes a mirror that is outdated, being deleted, or an orphan.
func (k *Keeper) delete(ctx context.Context, mirror, static *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RequestTimeout)
	defer cancel()
	none, uid := int64(0), mirror.UID
	err := answer.Deleted(k.deps.Client.CoreV1().RESTClient().Delete().Namespace(mirror.Namespace).Resource("pods").Name(mirror.Name).Body(&metav1.DeleteOptions{
		GracePeriodSeconds: &none,
		Preconditions:      &metav1.Preconditions{UID: &uid},
	}).Do(ctx), uid)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, answer.ErrNotSaid) {
		err = k.stored(ctx, mirror, err)
	}
	if err != nil {
		return fmt.Errorf("delete mirror pod %s (uid %s): %w", klog.KObj(mirror), mirror.UID, err)
	}
	klog.FromContext(ctx).Info("Mirror pod deleted", "pod", klog.KObj(mirror), "podUID", mirror.UID, "orphan", static == nil)
	return nil
}

// stored is said when a deletion has found no such mirror: an error while it is in
// the apiserver's store all the same. One that has just started has caches that know
// nothing yet, and NodeRestriction asks those. Pods of this node are listed since a
// node may not ask for one that is not there.
func (k *Keeper) stored(ctx context.Context, mirror *v1.Pod, said error) error {
	list, err := k.deps.Client.CoreV1().Pods(mirror.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"spec.nodeName": k.cfg.NodeName, "metadata.name": mirror.Name}.String(),
	})
	if err := answer.List(list, err); err != nil {
		return fmt.Errorf("it may be there though the apiserver says %q: look: %w", said.Error(), err)
	}
	if slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return p.UID == mirror.UID }) {
		return fmt.Errorf("it is there though the apiserver says: %w", said)
	}
	return nil
}

// create makes the mirror of a static pod.
func (k *Keeper) create(ctx context.Context, static *v1.Pod) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RequestTimeout)
	defer cancel()
	node, err := k.deps.Node(ctx)
	if err == nil && node.DeletionTimestamp != nil {
		err = errors.New("it is being deleted")
	}
	if err != nil {
		return nil, fmt.Errorf("make the mirror of static pod %s: node %s owns it: %w", klog.KObj(static), k.cfg.NodeName, err)
	}
	pod, err := k.deps.Client.CoreV1().Pods(static.Namespace).Create(ctx, image(static, node), metav1.CreateOptions{})
	err = answer.Object(pod, static.Name, err)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("make the mirror of static pod %s: a pod of this name is in the apiserver; if it is not a mirror that is about to be seen, delete it or rename the static pod: %w", klog.KObj(static), err)
	case err != nil:
		return nil, fmt.Errorf("make the mirror of static pod %s: %w", klog.KObj(static), err)
	}
	klog.FromContext(ctx).Info("Mirror pod created", "pod", klog.KObj(pod), "podUID", pod.UID, "static", static.UID)
	return pod, nil
}

// image is the object that shows a static pod.
func image(static *v1.Pod, node *v1.Node) *v1.Pod {
	pod := static.DeepCopy()
	pod.UID, pod.ResourceVersion = "", ""
	pod.Annotations = maps.Clone(pod.Annotations)
	pod.Annotations[podutil.AnnotationMirror] = static.Annotations[podutil.AnnotationHash]
	controller := true
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
	}}
	return pod
}
