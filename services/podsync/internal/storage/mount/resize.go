package mount

import (
	"context"
	"fmt"
	"sync"
	"time"

	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// mostResized is after how long a program that grows a filesystem is killed. The largest
// take minutes.
const mostResized = 30 * time.Minute

// Resize runs blkid, and the filesystem's own program, each by itself and in no shell.
func (k *Kernel) Resize(ctx context.Context, device, target string) error {
	err := k.resizes.join(ctx, device, func(ctx context.Context) error {
		_, err := mountutils.NewResizeFs(bounded{exec.New(), ctx}).Resize(device, target)
		return err
	})
	if err != nil {
		return fmt.Errorf("local: failed to grow the filesystem of device %s at %s: %w", device, target, err)
	}
	return nil
}

// bounded runs programs that are killed at the end of ctx.
type bounded struct {
	exec.Interface
	ctx context.Context
}

// Command implements exec.Interface.
func (b bounded) Command(cmd string, args ...string) exec.Cmd {
	return b.CommandContext(b.ctx, cmd, args...)
}

// resizes are the filesystems that are being grown, by their devices: several pods may have
// one, each where it is mounted for it. A program that hangs in the kernel does not end with
// its caller's deadline, nor when it is killed: nobody waits for it then, and no second one
// is begun beside it.
type resizes struct {
	mu  sync.Mutex
	all map[string]*resizing
}

type resizing struct {
	done chan struct{}
	err  error // once done
}

// join grows what is on a device, until ctx is done; what is under way then goes on,
// and is joined by the next call. What was joined is done once more: the device may have
// become larger since it began.
func (r *resizes) join(ctx context.Context, device string, do func(context.Context) error) error {
	for {
		one, begun := r.enter(ctx, device, do)
		select {
		case <-one.done:
			if begun || one.err != nil {
				return one.err
			}
		case <-ctx.Done():
			return fmt.Errorf("it is still being grown: %w", context.Cause(ctx))
		}
	}
}

// enter finds what is under way, or begins it.
func (r *resizes) enter(ctx context.Context, device string, do func(context.Context) error) (one *resizing, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.all[device]; one != nil {
		return one, false
	}
	one = &resizing{done: make(chan struct{})}
	if r.all == nil {
		r.all = map[string]*resizing{}
	}
	r.all[device] = one
	on, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostResized)
	go func() {
		defer cancel()
		one.err = do(on)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, device)
		close(one.done)
	}()
	return one, true
}
