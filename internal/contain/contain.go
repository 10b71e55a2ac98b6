// Package contain makes an error of a panic, so that what one pod's words bring about is that
// pod's failure and nobody else's.
//
// It owns how a panic is told of. It must never go round more than the work for one pod, volume
// or object: what others share is not to be trusted after a panic.
package contain

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
)

var seen atomic.Int64

// Seen is how many panics were made errors of since the process began. One is a fault of ours,
// or of a library: tests that look for faults ask.
func Seen() int64 { return seen.Load() }

// Panic is deferred by the function whose error it sets when that panics. What the function did
// is in the error, the stack in the log.
func Panic(ctx context.Context, doing string, err *error) {
	r := recover()
	if r == nil {
		return
	}
	seen.Add(1)
	*err = fmt.Errorf("%w: %s panicked: %v; this is a fault of polylet's, whose log has the stack", rpcerr.ErrInternal, doing, r)
	klog.FromContext(ctx).Error(*err, "A panic was contained; nothing else stops, please report it", "stack", string(debug.Stack()))
}
