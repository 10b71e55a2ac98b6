package assigned

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
)

// minWatch is how long the apiserver keeps a watch, at least.
const minWatch = 5 * time.Minute

// Run follows what is named, and writes what has become of it, until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { k.write(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-k.moved:
		}
		for k.followNamed(ctx) {
		}
	}
	return nil
}

// followNamed follows the ConfigMap that is named until another is; true: one is.
func (k *Keeper) followNamed(parent context.Context) (another bool) {
	text, seen := k.named()
	if !seen {
		return false
	}
	if text == "" {
		k.assign(parent, nil)
		return false
	}
	ref, err := parse(text)
	if err != nil {
		k.fail(parent, err.Error())
		return false
	}
	ctx, stop := context.WithCancel(parent)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { k.follow(ctx, ref) })
	for {
		select {
		case <-parent.Done():
			return false
		case <-k.moved:
			if now, _ := k.named(); now != text {
				return true
			}
		}
	}
}

// follow reads and watches one ConfigMap until ctx is done. One that may not be watched
// is read again each minute.
func (k *Keeper) follow(ctx context.Context, ref reference) {
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: time.Minute, Jitter: 0.2})
	for ctx.Err() == nil {
		version, err := k.read(ctx, ref)
		if err != nil {
			k.fail(ctx, fmt.Sprintf("%s cannot be read: %v; what was assigned before stays. Nodes need get, list and watch of it: a Role, and a RoleBinding for the group system:nodes", ref, err))
		}
		for err == nil && ctx.Err() == nil {
			opened := time.Now()
			version, err = k.watch(ctx, ref, version)
			if time.Since(opened) > time.Second {
				retry.Reset()
			} else if err == nil {
				err = errAtOnce
			}
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// errAtOnce is how a watch ends that brings nothing.
var errAtOnce = errors.New("the watch ends at once")

// read reads the ConfigMap, and returns the version from which it is to be watched.
func (k *Keeper) read(parent context.Context, ref reference) (version string, err error) {
	ctx, cancel := context.WithTimeout(parent, k.cfg.Timeout)
	defer cancel()
	there, err := k.cfg.ConfigMaps.ConfigMaps(ref.namespace).Get(ctx, ref.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		k.take(parent, ref, nil)
		return "", nil
	}
	if err := answer.Object(there, ref.name, err); err != nil {
		return "", err
	}
	k.take(parent, ref, there)
	return there.ResourceVersion, nil
}

func selector(ref reference) string {
	return fields.OneTermEqualSelector("metadata.name", ref.name).String()
}

// take takes in a ConfigMap as it is; nil: it is not there.
func (k *Keeper) take(ctx context.Context, ref reference, there *v1.ConfigMap) {
	if ctx.Err() != nil {
		return
	}
	if there == nil {
		k.fail(ctx, fmt.Sprintf("%s, which the annotation %s names, is not there; what was assigned before stays", ref, Annotation))
		return
	}
	d, err := document(there, ref)
	if err != nil {
		k.fail(ctx, err.Error()+"; what was assigned before stays")
		return
	}
	k.assign(ctx, d)
}

// watch follows the ConfigMap from a version on, until the apiserver ends that in order,
// and returns the version to which it came.
func (k *Keeper) watch(ctx context.Context, ref reference, version string) (string, error) {
	seconds := int64(minWatch.Seconds() * (1 + rand.Float64()))
	events, err := k.cfg.ConfigMaps.ConfigMaps(ref.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: selector(ref), ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return version, fmt.Errorf("watch %s: %w", ref, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, nil
		case event, open := <-events.ResultChan():
			if !open {
				return version, nil
			}
			if event.Type == apiwatch.Error {
				return version, apierrors.FromObject(event.Object)
			}
			there, ok := event.Object.(*v1.ConfigMap)
			if !ok {
				return version, errors.New("the watch sent something that is no ConfigMap")
			}
			version = there.ResourceVersion
			switch {
			case event.Type == apiwatch.Deleted && there.Name == ref.name:
				k.take(ctx, ref, nil)
			case (event.Type == apiwatch.Added || event.Type == apiwatch.Modified) && there.Name == ref.name:
				k.take(ctx, ref, there)
			}
		}
	}
}
