// Package follow follows one object of the apiserver: it reads the object, watches it
// from there on, and begins anew whenever the watch has ended.
//
// It owns these requests and when they are made. It must never decide what a change
// means.
package follow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
)

const (
	// minWatch is how long the apiserver keeps a watch, at least.
	minWatch = 5 * time.Minute
	// Grace is how much longer a watch may last than the apiserver was asked to keep it: a
	// proxy may keep it open for ever whose apiserver is gone.
	Grace = 30 * time.Second
	// atOnce is how soon a watch ends that brings nothing, and stood how long one lasts
	// after which an error is no sequel of those before it.
	atOnce, stood = time.Second, time.Minute
)

// Kind is a pointer to a kind of objects, as *v1.Node.
type Kind interface {
	metav1.Object
	runtime.Object
}

// One is an object that is followed. All but Unread and Ended must be set.
type One[T Kind] struct {
	// Name is the object's; Label is what errors call it, as "Node n1".
	Name, Label string
	// Read reads it: nil when it is not there. version is from where it is to be watched:
	// a list's, for an object's own may be one that the apiserver has forgotten. Empty is
	// from what there is then, which the watch brings first.
	Read func(ctx context.Context) (there T, version string, err error)
	// Open watches the objects of its kind that the options pick.
	Open func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	// Timeout is how long Read may take, Longest the longest pause after failures.
	Timeout, Longest time.Duration
	// Saw is called with the object as it is; nil when it is not there.
	Saw func(there T)
	// Unread is told why the object cannot be read; Ended why a watch of it has ended, nil
	// when the apiserver has ended it in order.
	Unread, Ended func(err error)
}

// Selector picks the object of a name.
func Selector(name string) string {
	return fields.OneTermEqualSelector("metadata.name", name).String()
}

// Follow follows the object until ctx is done, from a version on that it was seen in, or,
// where that is empty, by reading it.
//
// Whenever a watch has ended the object is read anew: an apiserver that was restarted may
// be one whose etcd was restored from before, and takes a watch from a version that its
// data have not come to, which brings nothing.
func (o One[T]) Follow(ctx context.Context, version string) {
	retry := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: o.Longest, Jitter: 0.2})
	for read := version == ""; ctx.Err() == nil; read = true {
		var err error
		if read {
			if version, err = o.read(ctx); err != nil {
				tell(ctx, o.Unread, err)
			}
		}
		if err == nil {
			opened := time.Now()
			err = o.watch(ctx, version)
			tell(ctx, o.Ended, err)
			lasted := time.Since(opened)
			if lasted > stood || err == nil && lasted > atOnce {
				retry.Reset()
			}
			if err == nil && lasted > atOnce {
				continue
			}
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// tell tells of an error, unless it comes of the end that was asked for.
func tell(ctx context.Context, whom func(error), err error) {
	if whom != nil && ctx.Err() == nil {
		whom(err)
	}
}

func (o One[T]) read(parent context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(parent, o.Timeout)
	defer cancel()
	there, version, err := o.Read(ctx)
	if err != nil {
		return "", err
	}
	if parent.Err() == nil {
		o.Saw(there)
	}
	return version, nil
}

// watch watches the object until the apiserver ends that in order, or should have, or ctx
// is done.
func (o One[T]) watch(ctx context.Context, version string) error {
	seconds := int64(minWatch.Seconds() * (1 + rand.Float64()))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+Grace)
	defer cancel()
	events, err := o.Open(ctx, metav1.ListOptions{FieldSelector: Selector(o.Name), ResourceVersion: version, TimeoutSeconds: &seconds})
	if err != nil {
		return fmt.Errorf("watch %s: %w", o.Label, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open || ctx.Err() != nil {
				return nil
			}
			if err := o.take(event); err != nil {
				return fmt.Errorf("watch %s: %w", o.Label, err)
			}
		}
	}
}

// take takes in what a watch has brought.
func (o One[T]) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	there, ok := event.Object.(T)
	if !ok {
		return fmt.Errorf("it has brought something else, a %T", event.Object)
	}
	if err := answer.Object(there, o.Name, nil); err != nil {
		return err
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		o.Saw(there)
	case watch.Deleted:
		var none T
		o.Saw(none)
	}
	return nil
}
