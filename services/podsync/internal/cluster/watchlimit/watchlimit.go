// Package watchlimit owns how often a watch is opened. client-go opens one that has ended anew
// at once, as long as it has brought anything, whatever that was: a proxy that answers
// each watch with one line would be asked thousands of times a second. It must never
// hold up a watch that ends now and then.
package watchlimit

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// atOnce is how many watches in a row are opened without a pause.
	atOnce = 20
	// every is the time between those after them.
	every = time.Second
)

// Of returns open that waits when it is called too often.
func Of(open cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	limiter := rate.NewLimiter(rate.Every(every), atOnce)
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if err := limiter.Wait(ctx); err != nil {
			return nil, err
		}
		return open(ctx, o)
	}
}
