package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// removeTimeout bounds the removal of a pod's directory; the next try goes on.
const removeTimeout = 2 * time.Minute

// Teardown unmounts and removes all volumes of a pod, from what is on the disk
// alone. Idempotent.
func (s *Set) Teardown(ctx context.Context, uid types.UID) error {
	if err := component("pod UID", string(uid)); err != nil {
		return err
	}
	st, leave, err := s.enter(ctx, uid)
	if err != nil {
		return withCause(fmt.Errorf("tear down the volumes of pod %s: %w", uid, err))
	}
	defer leave()
	hadClaims, err := s.takeDown(ctx, uid, st)
	if err != nil {
		return withCause(fmt.Errorf("tear down the volumes of pod %s: %w", uid, err))
	}
	if hadClaims {
		s.claimsFreed()
	}
	return nil
}

// takeDown does the work of Teardown, and says whether the pod may have had volumes of claims.
func (s *Set) takeDown(ctx context.Context, uid types.UID, st *podState) (hadClaims bool, err error) {
	left := s.allBound(uid)
	s.mu.Lock()
	st.left = left
	st.clear()
	st.ending = true
	delete(s.early, uid)
	if st.namespace != "" { // else a previous run has set them up
		ctx = apart.For(ctx, st.namespace)
	}
	s.mu.Unlock()
	if err := s.endWorks(ctx, st); err != nil {
		return false, err
	}
	hadClaims = s.mayHaveClaims(uid)
	s.letGo(uid)
	if err := s.removeAll(ctx, uid, st); err != nil {
		return false, err
	}
	for _, d := range s.drivers {
		if f, knows := d.(Forgetter); knows {
			f.Forget(uid)
		}
	}
	s.mu.Lock()
	s.dropLocked(uid, st)
	s.mu.Unlock()
	return hadClaims, nil
}

// mayHaveClaims says whether something of a claim's volume may be in a pod's directory: of
// one that another node agent has set up nothing is kept that says so.
func (s *Set) mayHaveClaims(uid types.UID) bool {
	dirs := []string{s.claimsDir(uid), filepath.Join(s.podDir(uid), devicesDir)}
	for _, plugin := range []string{pluginCSI, pluginLocal, pluginNFS, pluginISCSI, pluginFC} {
		dirs = append(dirs, filepath.Join(s.podDir(uid), volumesDir, plugin))
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(dir)
		return err == nil
	})
}

// letGo tells those of whom the pod's volumes are made that it needs nothing more.
func (s *Set) letGo(uid types.UID) {
	if s.deps.Growth != nil {
		s.deps.Growth.Leave(uid)
	}
	s.deps.Objects.Release(uid)
	s.deps.Tokens.Forget(uid)
	s.deps.Stale.Forget(uid)
	if s.deps.Certificates != nil {
		s.deps.Certificates.Forget(uid)
	}
}

// claimsFreed lets pods try again that lack a claim's volume, which others may have had
// until now.
func (s *Set) claimsFreed() {
	var wait []types.UID
	s.mu.Lock()
	for uid, st := range s.pods {
		if st.lacksClaimed() {
			wait = append(wait, uid)
		}
	}
	s.mu.Unlock()
	if s.deps.Pods != nil && len(wait) > 0 {
		s.deps.Pods.ObjectsChanged(wait)
	}
}

// lacksClaimed says whether a container uses a volume of a claim that is not set up.
func (st *podState) lacksClaimed() bool {
	if st.pod == nil {
		return false
	}
	used := claims.Used(st.pod)
	return slices.ContainsFunc(st.pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil && used[v.Name] && st.paths[v.Name] == ""
	})
}

// unmountAndRemove removes a volume whose files are the pod's own.
func unmountAndRemove(ctx context.Context, m mount.Mounter, dir string) error {
	if err := m.Unmount(dir); err != nil {
		return err
	}
	return removeTree(ctx, dir)
}

// RemovePodDir removes what is left of <root>/pods/<uid> after Teardown. It
// fails, and removes nothing more, at a mount that is left below it.
func (s *Set) RemovePodDir(uid types.UID) error {
	if err := component("pod UID", string(uid)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := removeTree(ctx, s.podDir(uid)); err != nil {
		return fmt.Errorf("remove the directory of pod %s: %w", uid, err)
	}
	return nil
}

// OnDisk lists the pods that have a directory.
func (s *Set) OnDisk() ([]types.UID, error) {
	found, err := names(filepath.Join(s.cfg.RootDir, "pods"))
	if err != nil {
		return nil, fmt.Errorf("list the pods' directories: %w", err)
	}
	uids := make([]types.UID, len(found))
	for i, name := range found {
		uids[i] = types.UID(name)
	}
	return uids, nil
}

// names lists a directory; empty when it does not exist. A symlink in its place is an error.
func names(dir string) ([]string, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory; remove it", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list, nil
}

// isThere says whether a path is there, without looking at it itself: who does that waits for
// the server or the process that it may lie with.
func isThere(path string) (bool, error) {
	all, err := names(filepath.Dir(path))
	return slices.Contains(all, filepath.Base(path)), err
}

// rmdir removes an empty directory; one that does not exist is fine.
func rmdir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
