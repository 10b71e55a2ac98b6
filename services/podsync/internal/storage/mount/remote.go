package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

const (
	// mostRemote is how long a filesystem of a server may take to be mounted: mount.nfs
	// itself gives up after two minutes.
	mostRemote = 5 * time.Minute
	// endsWithin is how long a server has to answer when its filesystem is unmounted.
	endsWithin = time.Minute
)

// Remote runs the host's mount, which runs its helper for the filesystem (mount.nfs), each
// by itself and in no shell.
func (k *Kernel) Remote(ctx context.Context, source, target, filesystem string, options []string) error {
	return mountRemote(ctx, exec.New(), helperOf, source, target, filesystem, options)
}

// helperOf is where mount looks for the helper of a filesystem; false when there is none.
func helperOf(filesystem string) bool {
	for _, dir := range []string{"/sbin", "/usr/sbin", "/sbin/fs.d", "/sbin/fs"} {
		if _, err := os.Stat(dir + "/mount." + filesystem); err == nil {
			return true
		}
	}
	return false
}

func mountRemote(ctx context.Context, run exec.Interface, has func(string) bool, source, target, filesystem string, options []string) error {
	if strings.HasPrefix(source, "-") || strings.ContainsFunc(source, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("%q is the name of no server's directory", source) // mount would read it as an option
	}
	ctx, cancel := context.WithTimeout(ctx, mostRemote)
	defer cancel()
	args, shown := mountutils.MakeMountArgsSensitive(source, target, filesystem, options, nil)
	out, err := run.CommandContext(ctx, "mount", args...).CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("mount failed: %w\nMounting command: %s\nMounting arguments: %s\nOutput: %s", err, "mount", shown, out)
	if !has(filesystem) {
		return fmt.Errorf("%w; this node has no mount.%s: install the %s client of its distribution (nfs-common, nfs-utils)", err, filesystem, strings.ToUpper(filesystem))
	}
	return err
}

// UnmountRemote ends a mount whose server may not answer: it is given a minute, then what
// waits for it fails, and the mount is ended at once.
func (k *Kernel) UnmountRemote(ctx context.Context, target string) error {
	done := make(chan error, 1)
	go func() { done <- k.Unmount(target) }()
	patience := time.NewTimer(endsWithin)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
	case <-ctx.Done():
		return fmt.Errorf("unmount %s: %w", target, context.Cause(ctx))
	}
	_ = unix.Unmount(target, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) // what is left is told by the next
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("unmount %s, whose server does not answer: %w", target, err)
}
