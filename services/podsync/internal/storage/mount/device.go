package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	mountutils "k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// mostDevice is how long a device may take to be mounted. Where much of it has to be made
// or mended that takes hours, and who is stopped at it begins anew.
const mostDevice = 6 * time.Hour

// callDevice is what is done apart of the mount of a device.
const callDevice = "mount-device"

// errNoDisk ends the wait for a disk.
var errNoDisk = podstate.VolumeDisk.Wrap(errors.New("the disk does not answer"))

// OtherFilesystem is an error of a device that could not be mounted, and has another
// filesystem on it than was asked for.
type OtherFilesystem struct {
	// Err is what the programs have said.
	Err error
}

// Error implements error.
func (o *OtherFilesystem) Error() string { return o.Err.Error() }

// Unwrap returns Err.
func (o *OtherFilesystem) Unwrap() error { return o.Err }

// otherFilesystem is what the process says of that; no program is called so.
const otherFilesystem = "another filesystem"

// Device has blkid, mkfs, fsck and mount run, each by itself and in no shell. No thread of
// this process waits for them. At the end of ctx no further one is begun, but the one that
// runs is left to its end: a filesystem that is half made or half mended is neither. Until
// then nothing else is done with the device, also by another process. Its mount may so come
// late: who takes target away ends what is mounted there, and removes the directory, so that
// nothing can be mounted on it any more. A filesystem that is of no device, such as proc, is
// refused: the kernel would mount it all the same, and whoever makes pods may say which.
func (k *Kernel) Device(ctx context.Context, device, target, filesystem string, options []string) error {
	if filesystem == "" || strings.ContainsFunc(filesystem, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%q is no filesystem's name", filesystem)) // it becomes part of a program's
	}
	if err := ofDevice(filesystem); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, mostDevice, errNoDisk)
	defer cancel()
	var other atomic.Bool
	told := func(program string) {
		if program == otherFilesystem {
			other.Store(true)
			return
		}
		klog.FromContext(ctx).Info("A disk holds nothing: a filesystem is made on it", "path", device, "program", program)
	}
	args := append([]string{os.Getenv("PATH"), k.cfg.Devices, device, target, filesystem}, options...)
	_, err := k.disks.Follow(ctx, device, told, callDevice, args...)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", device, target, filesystem, err)
	if other.Load() {
		return podstate.VolumeOtherFilesystem.Wrap(&OtherFilesystem{err})
	}
	return podstate.VolumeDisk.Wrap(err)
}

// deviceCall mounts a device, unless that is done: one that was left may have.
func deviceCall(args []string) (string, error) {
	const fixed = 5
	if len(args) < fixed {
		return "", fmt.Errorf("%s takes PATH, a directory, a device, where to mount it, its filesystem and options", callDevice)
	}
	locks, device, target, filesystem := args[1], args[2], args[3], args[4]
	if err := os.Setenv("PATH", args[0]); err != nil {
		return "", err
	}
	lock, err := lockDevice(locks, device, lockWithin)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	mounted, err := new(Kernel).Mounted(target)
	if err != nil || mounted {
		return "", err
	}
	run := programs{exec.New(), lock}
	format := mountutils.NewSafeFormatAndMount(byProgram{mountutils.NewWithoutSystemd(""), run}, run)
	if err := format.FormatAndMount(device, target, filesystem, args[fixed:]); err != nil {
		if typed := (mountutils.MountError{}); errors.As(err, &typed) && typed.Type == mountutils.FilesystemMismatch {
			apart.Tell(otherFilesystem)
		}
		return "", err // what has failed may have left something that runs: it keeps the lock
	}
	if err := endDeviceless(target); err != nil {
		return "", err
	}
	return "", os.Remove(lock.Name())
}

// endDeviceless ends what is mounted at a path and of no device: the kernel may have come to
// know it only now.
func endDeviceless(target string) error {
	mounted, err := new(Kernel).Mounted(target)
	if err != nil || !mounted {
		return err
	}
	kind, err := kindAt(target)
	if err == nil {
		err = ofDevice(kind)
	}
	if err != nil {
		if endErr := unmount(target); endErr != nil {
			return fmt.Errorf("%w; and it is still mounted at %s: %w", err, target, endErr)
		}
	}
	return err
}

// byProgram mounts by a program that keeps the lock.
type byProgram struct {
	mountutils.Interface
	run programs
}

// MountSensitive implements mountutils.Interface.
func (m byProgram) MountSensitive(source, target, filesystem string, options, sensitive []string) error {
	args, shown := mountutils.MakeMountArgsSensitive(source, target, filesystem, options, sensitive)
	if out, err := m.run.Command("mount", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount failed: %w\nMounting command: %s\nMounting arguments: %s\nOutput: %s", err, "mount", shown, out)
	}
	return nil
}

// ofDevice refuses a filesystem that is of no device, as far as the kernel knows it.
func ofDevice(filesystem string) error {
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("see which filesystems are of devices: %w", err)
	}
	if deviceless(string(list), filesystem) {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%s is no filesystem of a device: correct the volume's fsType", filesystem))
	}
	return nil
}

// deviceless says whether a list of filesystems, as the kernel makes it, has one that is of
// no device. What stands behind a dot says who serves it.
func deviceless(list, filesystem string) bool {
	name, _, _ := strings.Cut(filesystem, ".")
	for line := range strings.Lines(list) {
		if slices.Equal(strings.Fields(line), []string{"nodev", name}) {
			return true
		}
	}
	return false
}

// kindAt is which filesystem is mounted at a path, by the kernel's table.
func kindAt(target string) (string, error) {
	mounts, err := mountsOn(target)
	if err != nil {
		return "", err
	}
	if len(mounts) == 0 {
		return "", fmt.Errorf("nothing is mounted on %s", target)
	}
	return mounts[len(mounts)-1].FSType, nil
}
