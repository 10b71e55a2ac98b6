package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
)

// minWatch is how long the apiserver keeps a watch, at least.
const minWatch = 5 * time.Minute

// Watch calls changed with the Node whenever it changed, and with nil when it
// was deleted, until ctx is done. It begins after resourceVersion. Whenever a watch has
// ended the Node is read anew: an apiserver that was restarted may be one whose etcd was
// restored from before, and takes a watch from a version that its data have not come to,
// which brings nothing.
func (n Node) Watch(ctx context.Context, resourceVersion string, changed func(*v1.Node)) error {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	failing := false
	for first := true; ; first = false {
		opened := time.Now()
		var err error
		if !first {
			resourceVersion, err = n.relist(ctx, changed)
		}
		if err == nil {
			err = n.watchOnce(ctx, resourceVersion, changed)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && time.Since(opened) > time.Second {
			retry.Reset()
			failing = false
			continue // The apiserver ended it in order.
		}
		if err != nil && !failing {
			failing = true
			log.Info("Watch of the Node ended, opening it again", "reason", err.Error())
		}
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}

// selector is of the one Node.
func (n Node) selector() string {
	return fields.OneTermEqualSelector("metadata.name", n.Name).String()
}

// relist reads the Node after a gap, and returns the version to go on from.
func (n Node) relist(parent context.Context, changed func(*v1.Node)) (string, error) {
	ctx, cancel := context.WithTimeout(parent, n.Timeout)
	defer cancel()
	list, err := n.Client.List(ctx, metav1.ListOptions{FieldSelector: n.selector()})
	if err := answer.List(list, err); err != nil {
		return "", fmt.Errorf("list Node %s: %w", n.Name, err)
	}
	at := slices.IndexFunc(list.Items, func(is v1.Node) bool { return is.Name == n.Name })
	if at < 0 {
		changed(nil)
		return list.ResourceVersion, nil
	}
	there := &list.Items[at]
	if err := answer.Object(there, n.Name, nil); err != nil {
		return "", err
	}
	changed(trim(there))
	return list.ResourceVersion, nil
}

func (n Node) watchOnce(ctx context.Context, resourceVersion string, changed func(*v1.Node)) error {
	seconds := int64(minWatch.Seconds() * (1 + rand.Float64()))
	events, err := n.Client.Watch(ctx, metav1.ListOptions{
		FieldSelector: n.selector(), ResourceVersion: resourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return fmt.Errorf("watch Node %s: %w", n.Name, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if err := take(n.Name, event, changed); err != nil {
				return err
			}
		}
	}
}

func take(name string, event watch.Event, changed func(*v1.Node)) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	there, ok := event.Object.(*v1.Node)
	if !ok {
		return errors.New("the watch sent something that is no Node")
	}
	if err := answer.Object(there, name, nil); err != nil {
		return err
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		changed(trim(there))
	case watch.Deleted:
		changed(nil)
	}
	return nil
}
