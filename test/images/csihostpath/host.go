package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// host is what the driver does with the machine.
type host interface {
	// attach makes a loop device of a file, and says where; detach ends it, and is
	// content when it is gone. resize gives it the file's size.
	attach(file string) (device string, err error)
	detach(device string) error
	resize(device string) error
	// bind mounts what is at from at a target with flags of mount(2), once; unmount ends
	// that, and is content when nothing is there.
	bind(from, target string, flags uintptr) error
	unmount(target string) error
}

// machine is the real one.
type machine struct{}

func (machine) attach(file string) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	behind, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer behind.Close()
	for range 100 { // Another may take the free one first.
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		at := fmt.Sprintf("/dev/loop%d", number)
		switch err := configure(at, behind); {
		case err == nil:
			return at, nil
		case !errors.Is(err, unix.EBUSY):
			return "", err
		}
	}
	return "", errors.New("no loop device is free")
}

func configure(at string, behind *os.File) error {
	device, err := os.OpenFile(at, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	return unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(behind.Fd())}) //nolint:gosec // A descriptor's number.
}

// control has a loop device do something.
func control(at string, request uint) error {
	device, err := os.OpenFile(at, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	return unix.IoctlSetInt(int(device.Fd()), request, 0)
}

func (machine) detach(at string) error {
	err := control(at, unix.LOOP_CLR_FD)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (machine) resize(at string) error { return control(at, unix.LOOP_SET_CAPACITY) }

func (machine) bind(from, target string, flags uintptr) error {
	if mounted, err := mountinfo.Mounted(target); err != nil || mounted {
		return err
	}
	if err := unix.Mount(from, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, target, err)
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s with its options: %w", target, err), unix.Unmount(target, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

func (machine) unmount(target string) error {
	mounted, err := mountinfo.Mounted(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
}
