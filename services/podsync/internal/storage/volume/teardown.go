package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
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
		return fmt.Errorf("tear down the volumes of pod %s: %w", uid, err)
	}
	defer leave()
	hadClaims, err := s.takeDown(ctx, uid, st)
	if err != nil {
		return fmt.Errorf("tear down the volumes of pod %s: %w", uid, err)
	}
	if hadClaims {
		s.claimsFreed()
	}
	return nil
}

// takeDown does the work of Teardown, and says whether the pod may have had volumes of claims.
func (s *Set) takeDown(ctx context.Context, uid types.UID, st *podState) (hadClaims bool, err error) {
	s.mu.Lock()
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
	if err := s.removeAll(ctx, uid); err != nil {
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

func (s *Set) removeAll(ctx context.Context, uid types.UID) error {
	if err := s.removeSubPaths(ctx, uid); err != nil {
		return err
	}
	var failed []error
	for _, kind := range []string{volumesDir, devicesDir} {
		all := filepath.Join(s.podDir(uid), kind)
		plugins, err := names(all)
		failed = append(failed, err)
		for _, p := range plugins {
			failed = append(failed, s.removePlugin(ctx, uid, filepath.Join(all, p), p, kind == devicesDir))
		}
		if errors.Join(failed...) == nil {
			failed = append(failed, rmdir(all))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	// What claims the pod has is forgotten last: until then its volumes are in use.
	return errors.Join(removeTree(ctx, filepath.Join(s.podDir(uid), pluginsDir, pluginEmptyDir)), removeTree(ctx, s.claimsDir(uid)))
}

// removePlugin removes the volumes of one plugin, or its devices.
func (s *Set) removePlugin(ctx context.Context, uid types.UID, dir, plugin string, devices bool) error {
	volumes, err := names(dir)
	if err != nil {
		return err
	}
	driver := s.drivers[plugin]
	if driver == nil {
		driver = foreign{shownName(plugin)}
	}
	end := driver.Teardown
	if devices {
		end = foreign{shownName(plugin)}.Unmap
		if m, may := driver.(Mapper); may {
			end = m.Unmap
		}
	}
	failed := together(volumes, many(plugin), func(name string) error {
		began := time.Now()
		v := Remains{UID: uid, Name: name, Dir: filepath.Join(dir, name)}
		shown := s.shownDriver(shownName(plugin), v.Dir)
		err := end(ctx, v)
		s.deps.Metrics.Volume("volume_unmount", shown, began, err)
		return err
	})
	if failed != nil {
		return failed
	}
	return rmdir(dir)
}

// unmountAndRemove removes a volume whose files are the pod's own.
func unmountAndRemove(ctx context.Context, m mount.Mounter, dir string) error {
	if err := m.Unmount(dir); err != nil {
		return err
	}
	return removeTree(ctx, dir)
}

// many is how many volumes of a plugin are taken down at once: a server that does not
// answer is waited for once, not once for each.
func many(plugin string) int {
	if plugin == pluginNFS || plugin == pluginISCSI || plugin == pluginFC {
		return atOnce
	}
	return 1
}

// together does something with each, so many at once, and joins what failed in their order.
func together(all []string, most int, do func(string) error) error {
	failed := make([]error, len(all))
	places := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i, one := range all {
		if most == 1 {
			failed[i] = do(one)
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			failed[i] = do(one)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// removeSubPaths ends the bind mounts of subPaths: volume/container/index. Those of a
// server are waited for together.
func (s *Set) removeSubPaths(ctx context.Context, uid types.UID) error {
	root := filepath.Join(s.podDir(uid), subPathsDir)
	all, err := subPaths(root)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return removeTree(ctx, root)
	}
	served, err := s.deps.Mounter.Served(root)
	if err != nil {
		return err
	}
	var remote []string
	for _, at := range all {
		if served[at] {
			remote = append(remote, at)
			continue
		}
		if err := s.deps.Mounter.Unmount(at); err != nil {
			return err
		}
	}
	if err := together(remote, atOnce, func(at string) error { return s.deps.Mounter.UnmountRemote(ctx, at) }); err != nil {
		return err
	}
	return removeTree(ctx, root)
}

// subPaths are the places below root where subPaths are mounted.
func subPaths(root string) (all []string, err error) {
	level := []string{root}
	for range 3 {
		var next []string
		for _, dir := range level {
			below, err := names(dir)
			if err != nil {
				return nil, err
			}
			for _, name := range below {
				next = append(next, filepath.Join(dir, name))
			}
		}
		level = next
	}
	return level, nil
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

// rmdir removes an empty directory; one that does not exist is fine.
func rmdir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
