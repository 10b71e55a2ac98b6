package volume

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// chown gives a local volume to its pod's group, which others may be changing: containers of
// other pods have it mounted, or who owns its files works in it. What cannot be given is logged
// once and left, as the kubelet does: a file more or less must not keep the pod from starting.
type chown struct {
	// files counts what was given.
	files atomic.Int64

	failed  int
	example error
}

// change is how a pod has a volume given.
func (c *chown) change(pod *v1.Pod) ownership.Change {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	return ownership.Change{Group: ownership.Of(pod), OnMismatch: policy != nil && *policy == v1.FSGroupChangeOnRootMismatch, Given: &c.files}
}

// run gives root, which is open, and all in it that lies in no other mount.
func (c *chown) run(ctx context.Context, pod *v1.Pod, root *os.File) error {
	change := c.change(pod)
	change.Open = handleWithin
	change.Skip = func(err error) {
		if c.failed++; c.example == nil {
			c.example = err
		}
	}
	err := change.ApplyTo(ctx, root)
	if err == nil && c.failed > 0 {
		klog.FromContext(ctx).Info("Some files of a volume could not be given to the pod's fsGroup; they stay as they are",
			"path", root.Name(), "group", *change.Group, "files", c.failed, "err", c.example)
	}
	return err
}

// handleWithin gives a handle of what has a name in an open directory; a mount point is as if
// nothing were there.
func handleWithin(dir *os.File, name string) (int, error) {
	fd, err := openat2(eintr.Openat2).handle(dir, name)
	if errors.Is(err, errMountPoint) {
		return -1, unix.ENOENT
	}
	return fd, err
}
