package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Release ends the loop devices that hold a file open, as a kubelet makes them for each
// device that it gives to a pod.
func (k *Kernel) Release(file string) error {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	var failed []error
	for _, at := range found {
		of, err := os.ReadFile(at)
		if err != nil || strings.TrimSuffix(string(of), "\n") != file {
			continue // one that has ended meanwhile cannot be read
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(at)))
		failed = append(failed, endLoop(filepath.Join("/dev", name)))
	}
	return errors.Join(failed...)
}

func endLoop(device string) error {
	f, err := os.OpenFile(device, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("release loop device: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("release loop device %s: %w", device, err)
	}
	return nil
}
