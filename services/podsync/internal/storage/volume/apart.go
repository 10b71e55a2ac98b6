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
var errNoServer = errors.New("the volume's server does not answer")

// isServed says whether somebody is asked about what lies in a volume who may not answer.
func (s *Set) isServed(pod *v1.Pod, volumeName, path string) (bool, error) {
	v := podutil.Volume(pod, volumeName)
	if s.deps.Apart == nil || v == nil {
		return false, nil
	}
	b, _ := s.boundOf(pod.UID, volumeName)
	if v.CSI == nil && v.NFS == nil && b.Kind != claims.CSI && b.Kind != claims.NFS && !b.Served {
		return false, nil
	}
	served, err := s.deps.Mounter.Served(path)
	return served[path], err
}

// subPathApart makes a subPath of a volume whose server may not answer: whoever waits for
// that is another process, and meanwhile the pod's turn is not taken.
func (s *Set) subPathApart(ctx context.Context, uid types.UID, volumeName, volume, path, target string) error {
	err := s.work(ctx, uid, "subPath "+target+" "+path, func(ctx context.Context, _ *chown) error {
		ctx, cancel := context.WithTimeoutCause(ctx, subPathWithin, errNoServer)
		defer cancel()
		_, err := s.deps.Apart.Do(ctx, mount.Filesystem(volume), callSubPath, volume, filepath.Clean(path), target)
		return err
	})
	if err != nil {
		return fmt.Errorf("subPath %q of volume %q: %w", path, volumeName, err)
	}
	return nil
}

func subPathCall(args []string) (string, error) {
	if len(args) != 3 {
		return "", fmt.Errorf("%s takes a volume, a path in it, and a path", callSubPath)
	}
	found, err := openBeneath(args[0], args[1])
	if err != nil {
		return "", err
	}
	defer func() { _ = found.Close() }()
	return "", bind(mount.New(mount.Config{}), found, args[2])
}
