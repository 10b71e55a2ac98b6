package assigned

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
)

// write keeps the Node's annotations true until ctx is done.
func (k *Keeper) write(ctx context.Context) {
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: time.Minute, Jitter: 0.2})
	failing := false
	for ctx.Err() == nil {
		err := k.writeOnce(ctx)
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			klog.FromContext(ctx).Info("What has become of the cluster's configuration, on the Node", "failing", failing, "err", err)
		}
		k.unwritten.Wait(ctx, retry, err != nil)
	}
}

// writeOnce writes what is not true.
func (k *Keeper) writeOnce(parent context.Context) error {
	differ := k.differ()
	if len(differ) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": differ}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(parent, k.cfg.Timeout)
	defer cancel()
	n, err := k.cfg.Nodes.Patch(ctx, k.cfg.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err := answer.Object(n, k.cfg.NodeName, err); err != nil {
		return fmt.Errorf("write the annotations of Node %s: %w", k.cfg.NodeName, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrote = k.wrote || k.wrong != ""
	for name, value := range differ { // the watch brings it too, later
		if delete(k.there, name); value != nil {
			k.there[name] = *value
		}
	}
	return nil
}

// differ are the annotations that are not as they should be, nil where there should be
// none. What the owner has not said stays.
func (k *Keeper) differ() map[string]*string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.there == nil {
		return nil // it is not registered yet
	}
	want := map[string]string{}
	switch {
	case k.stands != nil:
		want = map[string]string{
			assignedAnnotation: k.stands.Assigned, activeAnnotation: k.stands.Active, goodAnnotation: k.stands.LastKnownGood,
			errorAnnotation: cut(cmp.Or(k.wrong, k.stands.Error)), waitsAnnotation: cut(k.stands.Waits),
		}
	case k.wrong != "" || k.wrote:
		want[errorAnnotation] = cut(k.wrong)
	}
	out := map[string]*string{}
	for name, value := range want {
		is, set := k.there[name]
		switch {
		case value == "" && set:
			out[name] = nil
		case value != "" && is != value:
			out[name] = &value
		}
	}
	return out
}
