package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hostPaths are what the host has.
type hostPaths struct{}

// Setup makes or checks the path.
func (hostPaths) Setup(_ context.Context, r Request) (Made, error) {
	h := r.Volume.HostPath
	if err := checkHostPath(h); err != nil {
		return Made{}, err // nothing of it was set up that could stand
	}
	return Made{Path: h.Path}, nil
}

// Teardown leaves to the host what is the host's.
func (hostPaths) Teardown(_ context.Context, v Remains) error { return rmdir(v.Dir) }

// checkHostPath makes or checks a path of the host as its type asks.
func checkHostPath(h *v1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(h.Path, "/"), "..") {
		return fmt.Errorf("hostPath %q must not contain '..'", h.Path)
	}
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	switch kind {
	case v1.HostPathUnset:
		return nil
	case v1.HostPathDirectoryOrCreate:
		if _, err := os.Stat(h.Path); errors.Is(err, fs.ErrNotExist) {
			return os.MkdirAll(h.Path, 0o755)
		}
		return mustBe(h.Path, "a directory", fs.FileMode.IsDir)
	case v1.HostPathFileOrCreate:
		if _, err := os.Stat(h.Path); errors.Is(err, fs.ErrNotExist) {
			f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
		return mustBe(h.Path, "a file", fs.FileMode.IsRegular)
	case v1.HostPathDirectory:
		return mustBe(h.Path, "a directory", fs.FileMode.IsDir)
	case v1.HostPathFile:
		return mustBe(h.Path, "a file", fs.FileMode.IsRegular)
	case v1.HostPathSocket:
		return mustBe(h.Path, "a socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 })
	case v1.HostPathCharDev:
		return mustBe(h.Path, "a character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 })
	case v1.HostPathBlockDev:
		return mustBe(h.Path, "a block device", func(m fs.FileMode) bool {
			return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
		})
	}
	return fmt.Errorf("%q is an invalid hostPath type", kind)
}

func mustBe(path, what string, is func(fs.FileMode) bool) error {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	if err != nil || !is(info.Mode()) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, what)
	}
	return nil
}
