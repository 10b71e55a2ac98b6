package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// CheckpointContainer implements PodSyncService. The archive holds the memory
// of the container: only root may enter the directory that it lies in.
// Source: KEP-2008.
func (s *Server) CheckpointContainer(ctx context.Context, req *podsyncv1.CheckpointContainerRequest) (*podsyncv1.CheckpointContainerResponse, error) {
	timeout := req.GetTimeout().AsDuration()
	if timeout < 0 {
		return nil, fmt.Errorf("%w: the timeout is %s: it may not be less than 0", rpcerr.ErrInvalid, timeout)
	}
	pod, err := s.find(req.GetPod())
	if err != nil {
		return nil, err
	}
	name := req.GetContainer()
	if c, _ := podutil.Container(pod.Pod, name); c == nil {
		return nil, fmt.Errorf("%w: container %q not found in pod %q", rpcerr.ErrNotFound, name, pod.Pod.Name)
	}
	prefix := fmt.Sprintf("checkpoint-%s_%s-%s-", pod.Pod.Name, pod.Pod.Namespace, name)
	file, err := s.roomForCheckpoint(prefix)
	if err != nil {
		return nil, err
	}
	defer s.checkpoints.over(file)
	path := filepath.Join(s.deps.CheckpointDir, file)
	if err := s.checkpoint(ctx, pod, name, path, int64(timeout/time.Second)); err != nil {
		return nil, fmt.Errorf("%w: checkpointing of %s/%s/%s failed (%v)", rpcerr.ErrInternal, pod.Pod.Namespace, pod.Pod.Name, name, err) //nolint:errorlint // the runtime's code is not the caller's
	}
	return &podsyncv1.CheckpointContainerResponse{Path: path}, nil
}

const (
	// maxCheckpoints is how many checkpoints of one container may lie on the node.
	maxCheckpoints = 10
	// minFreePercent of the disk stay free of checkpoints.
	minFreePercent = 10
)

// checkpoints are the files of those under way, by name: the runtime makes a file
// when it comes to that. Safe for concurrent use.
type checkpoints struct {
	mu       sync.Mutex
	underWay map[string]bool
}

// begin gives one more file its name, which nobody has, and says which files were
// under way before it.
func (c *checkpoints) begin(prefix string) (file string, before map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for file = ""; file == "" || c.underWay[file]; now = now.Add(time.Nanosecond) {
		file = prefix + now.Format(time.RFC3339Nano) + ".tar"
	}
	before = maps.Clone(c.underWay)
	if c.underWay == nil {
		c.underWay = map[string]bool{}
	}
	c.underWay[file] = true
	return file, before
}

// countCheckpoints counts the files with this prefix in a directory and among those
// that were under way before it was read: one that has come to its end since is in
// both, and counts once.
func countCheckpoints(dir, prefix string, underWay map[string]bool) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	names := maps.Clone(underWay)
	if names == nil {
		names = map[string]bool{}
	}
	for _, e := range entries {
		names[e.Name()] = true
	}
	have := 0
	for name := range names {
		when, ours := strings.CutPrefix(strings.TrimSuffix(name, ".tar"), prefix)
		if _, err := time.Parse(time.RFC3339, when); ours && err == nil {
			have++
		}
	}
	return have, nil
}

// over says that a file is there or will not come.
func (c *checkpoints) over(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.underWay, file)
}

// roomForCheckpoint names the next file and says that it is under way. It makes
// the directory of checkpoints, which only root may enter whoever made it, and
// refuses one more of a container that has many, or on a disk that is nearly
// full: nobody but people removes them.
func (s *Server) roomForCheckpoint(prefix string) (string, error) {
	dir := s.deps.CheckpointDir
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700)); err != nil { //nolint:gosec // A directory.
		return "", fmt.Errorf("%w: make the directory of checkpoints: %w", rpcerr.ErrInternal, err)
	}
	free, err := s.deps.FreePercent(dir)
	if err != nil {
		return "", fmt.Errorf("%w: look at the disk of %s: %w", rpcerr.ErrInternal, dir, err)
	}
	if free < minFreePercent {
		return "", fmt.Errorf("%w: %.0f %% of the disk of %s are free: a checkpoint is made from %d %% on", rpcerr.ErrExhausted, free, dir, minFreePercent)
	}
	file, before := s.checkpoints.begin(prefix)
	have, err := countCheckpoints(dir, prefix, before)
	if err != nil {
		s.checkpoints.over(file)
		return "", fmt.Errorf("%w: look at the checkpoints that are there: %w", rpcerr.ErrInternal, err)
	}
	if have >= maxCheckpoints {
		s.checkpoints.over(file)
		return "", fmt.Errorf("%w: there are %d checkpoints of this container in %s, those under way included: remove some", rpcerr.ErrExhausted, have, dir)
	}
	return file, nil
}

// freePercent is how much of a directory's disk is free.
func freePercent(dir string) (float64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return 100 * float64(fs.Bavail) / float64(max(fs.Blocks, 1)), nil
}

func (s *Server) checkpoint(ctx context.Context, pod podcache.Pod, name, path string, seconds int64) error {
	c, err := s.running(ctx, pod, name)
	if err != nil {
		return err
	}
	_, err = s.deps.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: c.ID, Location: path, Timeout: seconds})
	return err
}
