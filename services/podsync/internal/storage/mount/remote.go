package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	mountutils "k8s.io/mount-utils"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// mostRemote is how long a filesystem of a server may take to be mounted: mount.nfs
	// itself gives up after two minutes.
	mostRemote = 5 * time.Minute
	// killWait is how long a killed helper may hold what it says: one that waits in the
	// kernel may not end.
	killWait = 2 * time.Second
)

// command makes a program's call, as exec.CommandContext.
type command func(ctx context.Context, name string, args ...string) *exec.Cmd

// Remote runs the host's mount, which runs its helper for the filesystem (mount.nfs), each
// by itself and in no shell.
func (k *Kernel) Remote(ctx context.Context, source, target, filesystem string, options []string) error {
	return mountRemote(ctx, exec.CommandContext, helperOf, source, target, filesystem, options)
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

func mountRemote(ctx context.Context, run command, has func(string) bool, source, target, filesystem string, options []string) error {
	if strings.HasPrefix(source, "-") || strings.ContainsFunc(source, func(r rune) bool { return r < ' ' }) {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%q cannot be mounted: a server's name begins with no dash, and neither it nor the path has control characters; correct nfs.server or nfs.path of the volume", source)) // mount would read it as an option
	}
	ctx, cancel := context.WithTimeout(ctx, mostRemote)
	defer cancel()
	args, shown := mountutils.MakeMountArgsSensitive(source, target, filesystem, options, nil)
	cmd := run(ctx, "mount", args...)
	// Its helper, which is what waits for the server, ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	out, err := cmd.CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // what it has left running is its own affair
		return nil
	}
	err = fmt.Errorf("mount failed: %w\nMounting command: %s\nMounting arguments: %s\nOutput: %s", err, "mount", shown, out)
	if ctx.Err() != nil {
		return podstate.VolumeServerSilent.Wrap(fmt.Errorf("%w; it was ended before the server had answered: %w", err, context.Cause(ctx)))
	}
	if !has(filesystem) {
		return podstate.VolumeProgramMissing.Wrap(fmt.Errorf("%w; this node has no mount.%s: install the %s client of its distribution (nfs-common, nfs-utils)", err, filesystem, strings.ToUpper(filesystem)))
	}
	return podstate.VolumeServerRefused.Wrap(err)
}
