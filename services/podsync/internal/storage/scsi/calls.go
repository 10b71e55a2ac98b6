package scsi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// What is done apart: each may wait for a disk that does not answer.
const (
	callScan    = "scsi-scan"
	callRelease = "scsi-release"
	callHeld    = "scsi-held"
)

// scanCall has the kernel look for disks: it writes which into the bus's file.
func scanCall(args []string) (string, error) {
	if len(args) != 2 {
		return "", fmt.Errorf("%s takes a file of the kernel's, and what it is told", callScan)
	}
	return "", tellKernel(args[0], args[1])
}

// releaseCall has the kernel forget a disk that nobody holds open, once what is to be
// written to it is.
func releaseCall(args []string) (string, error) {
	if len(args) != 2 {
		return "", fmt.Errorf("%s takes a disk and the file that removes it", callRelease)
	}
	// What cannot be written any more keeps nobody: its filesystem is unmounted.
	err := alone(args[0], func(fd int) { _ = unix.Fsync(fd) })
	if errors.Is(err, unix.EBUSY) {
		return "", fmt.Errorf("%s is in use still: it is mounted, or part of another device", args[0])
	}
	if err != nil {
		return "", err
	}
	if err := tellKernel(args[1], "1"); !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return "", nil
}

// heldCall is the first of some devices that somebody holds: it is mounted, or part of
// another device.
func heldCall(args []string) (string, error) {
	for _, device := range args {
		err := alone(device, func(int) {})
		if errors.Is(err, unix.EBUSY) {
			return device, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// alone opens a device if nobody holds it (EBUSY), and does something with it. One that is
// not there is held by nobody.
func alone(device string, do func(fd int)) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOMEDIUM):
		return nil
	case err != nil:
		return &os.PathError{Op: "open", Path: device, Err: err}
	}
	do(fd)
	return unix.Close(fd)
}

// tellKernel writes into a file that there is.
func tellKernel(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
