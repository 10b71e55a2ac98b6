package volume

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// leaving is one volume, or device, of a pod that is to be taken down.
type leaving struct {
	// name is its directory's, and plugin says who made it.
	name, plugin string
	// key is no other's of the pod: a volume's directory.
	key string
	// whose names who is waited for, and most is how many of his go at once.
	whose string
	most  int
	end   func(context.Context) error
}

// removeAll takes all volumes of a pod down, each by itself: whoever of those that are waited
// for does not answer holds up his own.
func (s *Set) removeAll(ctx context.Context, uid types.UID, st *podState) error {
	all, dirs, unread := s.leaving(uid)
	if unread == nil {
		s.onWay(st, all)
	}
	if err := errors.Join(unread, s.takeEach(ctx, all, st)); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := rmdir(dir); err != nil {
			return err
		}
	}
	// What claims the pod has is forgotten last: until then its volumes are in use.
	return errors.Join(
		removeTree(ctx, filepath.Join(s.podDir(uid), subPathsDir)),
		removeTree(ctx, filepath.Join(s.podDir(uid), pluginsDir, pluginEmptyDir)),
		removeTree(ctx, s.claimsDir(uid)),
	)
}

// onWay is a volume that is to be taken down, or is gone already.
type onWay struct {
	plugin string
	gone   bool
}

// onWay notes which volumes of a pod are to be taken down.
func (s *Set) onWay(st *podState, all []leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, at := range st.onWay {
		at.gone = true
		st.onWay[dir] = at
	}
	if st.onWay == nil {
		st.onWay = make(map[string]onWay, len(all))
	}
	for _, l := range all {
		st.onWay[l.key] = onWay{plugin: l.plugin}
	}
}

// went notes that one is gone.
func (s *Set) went(st *podState, l *leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, is := st.onWay[l.key]; is {
		at.gone = true
		st.onWay[l.key] = at
	}
}

// leaving lists the volumes of a pod that are on the disk, and the directories that are empty
// without them, the innermost first. Beside an error it is what could be read.
func (s *Set) leaving(uid types.UID) (all []leaving, dirs []string, unread error) {
	subs := s.subPathsOf(uid)
	failed := []error{subs.err}
	for _, kind := range []string{volumesDir, devicesDir} {
		root := filepath.Join(s.podDir(uid), kind)
		plugins, err := names(root)
		failed = append(failed, err)
		for _, p := range plugins {
			dir := filepath.Join(root, p)
			volumes, err := names(dir)
			failed = append(failed, err)
			for _, name := range volumes {
				all = append(all, s.leavingOne(Remains{UID: uid, Name: name, Dir: filepath.Join(dir, name)}, p, kind == devicesDir, subs.take(p, name)))
			}
			dirs = append(dirs, dir)
		}
		dirs = append(dirs, root)
	}
	// Of what the host has, or of nobody knows what. In one order: the same failures are the
	// same error.
	for _, name := range slices.Sorted(maps.Keys(subs.of)) {
		all = append(all, leaving{name: name, plugin: "subPath", key: subPathsDir + "/" + name, whose: "subPath", most: atOnce, end: subs.of[name].end})
	}
	return all, dirs, errors.Join(failed...)
}

// leavingOne is one volume of a plugin. What containers were shown of it goes first: as long
// as that is mounted, its disk is in use.
func (s *Set) leavingOne(v Remains, plugin string, device bool, sub subPathEnds) leaving {
	driver := s.drivers[plugin]
	if driver == nil {
		driver = foreign{shownName(plugin)}
	}
	operation, end := "volume_unmount", driver.Teardown
	if device {
		operation, end = "unmap_volume", foreign{shownName(plugin)}.Unmap
		if m, may := driver.(Mapper); may {
			end = m.Unmap
		}
	}
	shown, migrated := s.shownDriver(shownName(plugin), v.Dir), plugin == pluginCSI && s.isMigrated(v.UID, v.Name)
	return leaving{name: v.Name, plugin: shown, key: v.Dir, whose: shown, most: many(plugin), end: func(ctx context.Context) error {
		if err := sub.end(ctx); err != nil {
			return err
		}
		began := time.Now()
		err := end(ctx, v)
		s.deps.Metrics.Volume(operation, shown, migrated, began, err)
		return err
	}}
}

// many is how many volumes of one of those who are waited for are taken down at once. What
// lies on the node's own disk goes one after the other.
func many(plugin string) int {
	switch plugin {
	case pluginEmptyDir, pluginConfigMap, pluginSecret, pluginDownwardAPI, pluginProjected:
		return 1
	}
	return atOnce
}

// longTry is how long a try takes that is not made again beside others unless it may work: who
// waits for somebody that long waits for him alone.
const longTry = 10 * time.Second

// takeEach takes volumes down at once. One that fails is tried again, when its own time has
// come, until all have been tried: it waits for none of them. Then what is left has the pod's
// turn no longer, and the error says when the first of it is to be tried again.
func (s *Set) takeEach(ctx context.Context, all []leaving, st *podState) error {
	failed, left := make([]error, len(all)), make([]*retry, len(all))
	came := func() <-chan struct{} { return s.mayWork(st) }
	var places lanes
	var first, wg sync.WaitGroup
	first.Add(len(all))
	tried := make(chan struct{})
	wg.Go(func() { first.Wait(); close(tried) })
	for i, l := range all {
		r := st.retries.get(&l)
		left[i] = r
		wg.Go(func() {
			took := time.Duration(0)
			if !r.waits() {
				took = r.try(ctx, &l, &places, came)
			}
			first.Done()
			for r.err != nil && l.pause(ctx, r, took, tried) {
				took = r.try(ctx, &l, &places, came)
			}
			if failed[i] = withCause(r.err); r.err == nil {
				s.went(st, &l)
			}
		})
	}
	wg.Wait()
	var next time.Time
	for _, r := range left {
		if r.err != nil && (next.IsZero() || r.due.Before(next)) {
			next = r.due
		}
	}
	return reason.Later(next, errors.Join(failed...))
}

// pause lets time pass after a failure that took a while, or less if it may work sooner, and says
// whether it is to be tried again: not when there is nobody whom it would wait for.
func (l *leaving) pause(ctx context.Context, r *retry, took time.Duration, tried <-chan struct{}) (again bool) {
	select {
	case <-tried:
		return false
	default:
	}
	ended := timeline.Start(ctx, timeline.UnmountAgain, l.name, r.err.Error())
	defer ended(nil)
	var over <-chan time.Time
	if took < longTry {
		timer := time.NewTimer(time.Until(r.due))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-r.sooner:
	case <-tried:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// MayWork tells that what has failed of pods' volumes may work now, as when a driver has come.
func (s *Set) MayWork(uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range uids {
		if st := s.pods[uid]; st != nil {
			close(st.came)
			st.came = make(chan struct{})
		}
	}
}

// mayWork is closed with the next MayWork.
func (s *Set) mayWork(st *podState) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.came
}

// try takes it down when there is a place for that, and says how long it took from then on.
func (l *leaving) try(ctx context.Context, places *lanes) (took time.Duration, err error) {
	ended := timeline.Start(ctx, timeline.Unmount, l.name, l.plugin)
	defer func() { ended(err) }()
	defer contain.Panic(ctx, "taking volume "+l.name+" down", &err)
	leave, err := places.enter(ctx, l.whose, l.most)
	if err != nil {
		return 0, err
	}
	defer leave()
	began := time.Now()
	err = l.end(ctx)
	return time.Since(began), err
}

// subPathsLeft are the bind mounts of a pod's subPaths, by volume.
type subPathsLeft struct {
	set *Set
	uid types.UID
	of  map[string]subPathEnds
	err error // why they are not all known
}

// subPathsOf finds those of a pod: volume/container/index. A volume is called as in the pod's
// spec there, or, by another agent, as its directory.
func (s *Set) subPathsOf(uid types.UID) subPathsLeft {
	root := filepath.Join(s.podDir(uid), subPathsDir)
	volumes, err := names(root)
	left := subPathsLeft{set: s, uid: uid, of: make(map[string]subPathEnds, len(volumes)), err: err}
	served := sync.OnceValues(func() (map[string]bool, error) { return s.deps.Mounter.Served(root) })
	for _, v := range volumes {
		left.of[v] = subPathEnds{{dir: filepath.Join(root, v), served: served, m: s.deps.Mounter}}
	}
	return left
}

// take hands out those of the volume in a directory of a plugin.
func (l *subPathsLeft) take(plugin, name string) (ends subPathEnds) {
	for volume, one := range l.of {
		is := volume == name
		if b, kept := l.set.keptBound(l.uid, volume); kept {
			is = b.PV == name && pluginOf(b.Kind) == plugin
		}
		if is {
			ends = append(ends, one...)
			delete(l.of, volume)
		}
	}
	return ends
}

// subPathEnds are the subPaths of a volume.
type subPathEnds []subPathEnd

func (e subPathEnds) end(ctx context.Context) error {
	var failed []error
	for _, one := range e {
		failed = append(failed, one.end(ctx))
	}
	return errors.Join(failed...)
}

// subPathEnd are the subPaths in a directory: container/index.
type subPathEnd struct {
	dir    string
	served func() (map[string]bool, error)
	m      mount.Mounter
}

// end unmounts them and removes the directory. Those of a server are waited for together.
func (e subPathEnd) end(ctx context.Context) error {
	all, err := subPaths(e.dir)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		served, err := e.served()
		if err != nil {
			return err
		}
		var failed []error
		remote := slices.DeleteFunc(all, func(at string) bool {
			if !served[at] {
				failed = append(failed, e.m.Unmount(at))
			}
			return !served[at]
		})
		failed = append(failed, together(remote, atOnce, func(at string) error { return e.m.UnmountRemote(ctx, at) }))
		if err := errors.Join(failed...); err != nil {
			return err
		}
	}
	return removeTree(ctx, e.dir)
}

// subPaths are the places below a volume's directory where subPaths are mounted.
func subPaths(dir string) (all []string, err error) {
	containers, err := names(dir)
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		indices, err := names(filepath.Join(dir, c))
		if err != nil {
			return nil, err
		}
		for _, i := range indices {
			all = append(all, filepath.Join(dir, c, i))
		}
	}
	return all, nil
}

// together does something with each, so many at once, and joins what failed in their order.
func together(all []string, most int, do func(string) error) error {
	failed := make([]error, len(all))
	places := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i, one := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			failed[i] = do(one)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}
