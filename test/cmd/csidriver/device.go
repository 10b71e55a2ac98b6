package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// image is the file behind a volume that is a device.
func image(dir, volume string) string { return filepath.Join(dir, volume+".img") }

// loop is the loop device of a file; empty for none.
func loop(file string) (string, error) {
	out, err := exec.Command("losetup", "--noheadings", "--output", "NAME", "--associated", file).Output()
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return name, err
}

// device makes a volume's device at target, from the file behind it.
func device(dir, volume, target string) error {
	file := image(dir, volume)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(1<<20), f.Close()); err != nil {
		return err
	}
	at, err := loop(file)
	if err == nil && at == "" {
		var out []byte
		out, err = exec.Command("losetup", "--find", "--show", file).Output()
		at = strings.TrimSpace(string(out))
	}
	if err != nil {
		return fmt.Errorf("losetup: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		return err
	}
	return unix.Mknod(target, unix.S_IFBLK|0o660, int(st.Rdev)) //nolint:gosec // A device's number.
}

// free ends the loop device of a volume.
func free(dir, volume string) error {
	at, err := loop(image(dir, volume))
	if err != nil || at == "" {
		return err
	}
	return exec.Command("losetup", "--detach", at).Run()
}
