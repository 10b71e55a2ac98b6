package mount

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// endsWithin is how long a server has to answer when its filesystem is unmounted, and
	// detachesWithin how long the kernel has for what asks no server.
	endsWithin     = time.Minute
	detachesWithin = 20 * time.Second
)

// What is done apart of the end of a mount.
const (
	callUnmount = "unmount"
	callDetach  = "detach"
)

// errNoServer ends the wait for a server.
var errNoServer = podstate.VolumeServerSilent.Wrap(errors.New("its server does not answer"))

// UnmountRemote ends a mount whose server may not answer: it is given a minute, then what
// waits for it fails, and the mount is ended at once. No thread of this process waits; of
// one server only so many mounts are ended at once.
func (k *Kernel) UnmountRemote(ctx context.Context, target string) error {
	mounted, err := k.Mounted(target)
	if err != nil || !mounted {
		return err
	}
	whose := Filesystem(target)
	over, err := k.end(ctx, endsWithin, whose, callUnmount, target)
	if over {
		return err
	}
	over, forced := k.end(ctx, detachesWithin, whose, callDetach, target)
	if over {
		return forced
	}
	return fmt.Errorf("unmount %s, whose server does not answer: %w; and detach it: %w", target, err, forced)
}

// end has a mount ended, within a time. It is over when it is, when ctx is, or when the
// kernel refuses to: one that has only not answered may still be mounted.
func (k *Kernel) end(ctx context.Context, within time.Duration, whose, call, target string) (over bool, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, within, errNoServer)
	defer cancel()
	_, err = k.ends.Do(limited, whose, call, target)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return true, fmt.Errorf("unmount %s: %w", target, err)
	}
	// It ends with what is written to the server, for which it may wait: what it was about is
	// done then.
	if mounted, lookErr := k.Mounted(target); lookErr == nil && !mounted {
		return true, nil
	}
	return limited.Err() == nil, err
}

// Filesystem names what is mounted on target, as the same for all mounts of it. Nobody is
// asked for that.
func Filesystem(target string) string {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return target
	}
	return fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)
}

func unmountCall(args []string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s takes one path", callUnmount)
	}
	return "", unmount(args[0])
}

// detachCall has what waits for the server fail, and ends the mount for whoever looks.
func detachCall(args []string) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s takes one path", callDetach)
	}
	_ = unix.Unmount(args[0], unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) // what is left is told by the next
	return "", ended(args[0], unix.Unmount(args[0], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}
