package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostPaths are what the host has.
type hostPaths struct{ set *Set }

// Setup makes or checks the path.
func (d hostPaths) Setup(ctx context.Context, r Request) (Made, error) {
	h := r.Volume.HostPath
	if err := d.set.hostPath(ctx, r.Pod.UID, r.Volume.Name, h); err != nil {
		return Made{}, err // nothing of it was set up that could stand
	}
	return Made{Path: h.Path}, nil
}

// hostPath makes or checks a path of the host. One that lies with a server, which may not
// answer, is looked at by another process, and meanwhile the pod's turn is not taken.
func (s *Set) hostPath(ctx context.Context, uid types.UID, volume string, h *v1.HostPathVolumeSource) error {
	if s.deps.Apart == nil || h.Type == nil || *h.Type == v1.HostPathUnset {
		return checkHostPath(h)
	}
	at, err := s.deps.Mounter.AskedAt(h.Path)
	if err != nil {
		return err
	}
	if at == "" {
		return checkHostPath(h)
	}
	return s.work(ctx, uid, "hostPath "+volume, func(ctx context.Context, _ *chown) error {
		ctx, cancel := context.WithTimeoutCause(ctx, servedPathWithin, errNoPathServer)
		defer cancel()
		_, err := s.deps.Apart.Do(ctx, at, callHostPath, h.Path, string(*h.Type))
		return err
	})
}

const callHostPath = "host-path"

// servedPathWithin is how long a server has to answer for a hostPath.
const servedPathWithin = time.Minute

// errNoPathServer ends the wait for it.
var errNoPathServer = errors.New("hostPath type check failed: the path lies on a filesystem whose server does not answer")

func hostPathCall(args []string) (string, error) {
	if len(args) != 2 {
		return "", fmt.Errorf("%s takes a path and a type", callHostPath)
	}
	kind := v1.HostPathType(args[1])
	return "", checkHostPath(&v1.HostPathVolumeSource{Path: args[0], Type: &kind})
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
