package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// Apart has calls done by processes of their own; *apart.Processes has it.
type Apart interface {
	ownership.Apart
	Do(ctx context.Context, whose, call string, args ...string) (string, error)
}

// Calls are what a Set has processes of their own do.
func Calls() map[string]apart.Call {
	return map[string]apart.Call{callSubPath: subPathCall, callHostPath: hostPathCall, callLocal: localCall}
}

const callSubPath = "subpath"

// subPathWithin is how long a server has to answer for one subPath.
const subPathWithin = time.Minute

// errNoServer ends the wait for a server.
var errNoServer = podstate.VolumeServerSilent.Wrap(errors.New("the volume's server does not answer"))

// subPath is one whose way leads to somebody who may not answer.
type subPath struct {
	whose        string // who may not answer
	name         string // the volume's in the pod's spec
	volume, path string
	ofHost       bool // what the host has
	target       string
}

// askedForSubPath is who is asked for a path in a volume and may not answer; empty when nobody
// is. What the host has may lie with a server, and so may anything that is mounted below it or
// below another volume: by an automounter, or by a container.
func (s *Set) askedForSubPath(pod *v1.Pod, volumeName, volume, path string, ofHost bool) (whose string, err error) {
	v := podutil.Volume(pod, volumeName)
	if s.deps.Apart == nil || v == nil {
		return "", nil
	}
	b, _ := s.boundOf(pod.UID, volumeName)
	if v.CSI != nil || v.NFS != nil || b.Kind == claims.CSI || b.Kind == claims.NFS || b.Served {
		served, err := s.deps.Mounter.Served(volume)
		if err != nil {
			return "", err
		}
		if served[volume] {
			return mount.Filesystem(volume), nil
		}
	}
	return s.deps.Mounter.AskedAt(filepath.Join(volume, path))
}

// subPathApart makes a subPath: whoever waits for an answer is another process, and meanwhile
// the pod's turn is not taken.
func (s *Set) subPathApart(ctx context.Context, uid types.UID, p subPath) error {
	err := s.work(ctx, uid, "subPath "+p.target+" "+p.path, func(ctx context.Context, _ *chown) error {
		ctx, cancel := context.WithTimeoutCause(ctx, subPathWithin, errNoServer)
		defer cancel()
		args := []string{p.volume, p.path, p.target}
		if p.ofHost {
			args = append(args, ofHostFlag)
		}
		_, err := s.deps.Apart.Do(ctx, p.whose, callSubPath, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("subPath %q of volume %q: %w", p.path, p.name, err)
	}
	return nil
}

// ofHostFlag says to a process that a volume is what the host has.
const ofHostFlag = "of-host"

func subPathCall(args []string) (string, error) {
	if len(args) != 3 && (len(args) != 4 || args[3] != ofHostFlag) {
		return "", fmt.Errorf("%s takes a volume, a path in it, and a path", callSubPath)
	}
	found, err := findSubPath(args[0], args[1], len(args) == 4)
	if err != nil {
		return "", err
	}
	defer func() { _ = found.Close() }()
	return "", bind(mount.New(mount.Config{}), found, args[2])
}
