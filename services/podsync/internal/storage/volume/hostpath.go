package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
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
	err := checkHostPath(h, s.find)
	asked, is := errors.AsType[*askedError](err)
	if !is {
		return err
	}
	return s.work(ctx, uid, "hostPath "+volume, func(ctx context.Context, _ *chown) error {
		ctx, cancel := context.WithTimeoutCause(ctx, servedPathWithin, errNoPathServer)
		defer cancel()
		_, err := s.deps.Apart.Do(ctx, asked.at, callHostPath, h.Path, string(*h.Type))
		if err != nil && strings.HasSuffix(err.Error(), fmt.Sprintf(isNot, h.Path, hostPathTypes[*h.Type].what)) {
			return podstate.VolumeHostPath.Wrap(err) // the text is all that comes from another process
		}
		return err
	})
}

const callHostPath = "host-path"

// isNot says of a path that it is not of its type.
const isNot = "hostPath type check failed: %s is not %s"

// servedPathWithin is how long a server has to answer for a hostPath.
const servedPathWithin = time.Minute

// errNoPathServer ends the wait for it.
var errNoPathServer = podstate.VolumeServerSilent.Wrap(errors.New("hostPath type check failed: the path lies on a filesystem whose server does not answer"))

func hostPathCall(args []string) (string, error) {
	if len(args) != 2 {
		return "", fmt.Errorf("%s takes a path and a type", callHostPath)
	}
	kind := v1.HostPathType(args[1])
	return "", checkHostPath(&v1.HostPathVolumeSource{Path: args[0], Type: &kind}, findByPath)
}

// Teardown leaves to the host what is the host's.
func (hostPaths) Teardown(_ context.Context, v Remains) error { return rmdir(v.Dir) }

// checkHostPath makes or checks a path of the host as its type asks.
func checkHostPath(h *v1.HostPathVolumeSource, find finder) error {
	if slices.Contains(strings.Split(h.Path, "/"), "..") {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("hostPath %q must not contain '..'", h.Path))
	}
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	if kind == v1.HostPathUnset {
		return nil
	}
	is, known := hostPathTypes[kind]
	if !known {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%q is an invalid hostPath type", kind))
	}
	found, err := find(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			return find.makeDirs(filepath.Clean(h.Path)) // it may end with a slash
		case v1.HostPathFileOrCreate:
			return find.makeFile(h.Path)
		}
		return podstate.VolumeHostPath.Wrap(fmt.Errorf(isNot, h.Path, is.what))
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	defer func() { _ = found.Close() }()
	info, err := found.Stat()
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	if !is.mode(info.Mode()) {
		return podstate.VolumeHostPath.Wrap(fmt.Errorf(isNot, h.Path, is.what))
	}
	return nil
}

// hostPathType is what a path of the host has to be, in words and by its mode.
type hostPathType struct {
	what string
	mode func(fs.FileMode) bool
}

var hostPathTypes = map[v1.HostPathType]hostPathType{
	v1.HostPathDirectoryOrCreate: {"a directory", fs.FileMode.IsDir},
	v1.HostPathDirectory:         {"a directory", fs.FileMode.IsDir},
	v1.HostPathFileOrCreate:      {"a file", fs.FileMode.IsRegular},
	v1.HostPathFile:              {"a file", fs.FileMode.IsRegular},
	v1.HostPathSocket:            {"a socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }},
	v1.HostPathCharDev:           {"a character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }},
	v1.HostPathBlockDev:          {"a block device", func(m fs.FileMode) bool { return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0 }},
}
