package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
// was deleted, until ctx is done. It begins after resourceVersion.
func (n Node) Watch(ctx context.Context, resourceVersion string, changed func(*v1.Node)) error {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	failing := false
	for {
		opened := time.Now()
		err := n.watchOnce(ctx, &resourceVersion, changed)
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
			log.Info("Watch of the Node ended, opening it again", "err", err)
		}
		if retry.Wait(ctx) != nil {
			return nil
		}
		resourceVersion = n.relist(ctx, changed)
	}
}

// relist reads the Node after a gap; "" when it could not.
func (n Node) relist(ctx context.Context, changed func(*v1.Node)) string {
	there, err := n.Get(ctx)
	switch {
	case err == nil:
		changed(there)
		return there.ResourceVersion
	case apierrors.IsNotFound(err):
		changed(nil)
	}
	return ""
}

func (n Node) watchOnce(ctx context.Context, resourceVersion *string, changed func(*v1.Node)) error {
	seconds := int64(minWatch.Seconds() * (1 + rand.Float64()))
	events, err := n.Client.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Name).String(), ResourceVersion: *resourceVersion,
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
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
			if err := take(n.Name, event, resourceVersion, changed); err != nil {
				return err
			}
		}
	}
}

func take(name string, event watch.Event, resourceVersion *string, changed func(*v1.Node)) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	there, ok := event.Object.(*v1.Node)
	if !ok {
		return errors.New("the watch sent something that is no Node")
	}
	if event.Type != watch.Bookmark {
		if err := answer.Object(there, name, nil); err != nil {
			return err
		}
	}
	*resourceVersion = there.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		changed(trim(there))
	case watch.Deleted:
		changed(nil)
	}
	return nil
}
