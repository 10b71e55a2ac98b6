package volume

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// result is how the set-up of one volume went.
type result struct {
	Made
	err error
	// unused: no container names it, and nothing was done.
	unused bool
}

// Setup makes volumes of pod, in parallel: those that are named, or all of them. It
// is idempotent, and also the way to tell of a pod's new labels or annotations. The
// error is podstate.VolumeErrors, unless it is of something before all volumes.
func (s *Set) Setup(ctx context.Context, pod *v1.Pod, volumes ...string) error {
	if err := component("pod UID", string(pod.UID)); err != nil {
		return err
	}
	s.deps.Objects.Hold(pod)
	ctx = apart.For(ctx, pod.Namespace)
	st, leave, err := s.enter(ctx, pod.UID)
	if err != nil {
		return withCause(fmt.Errorf("set up the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	defer leave()
	s.mu.Lock()
	st.ending, st.left, st.onWay = false, nil, nil
	st.retries.forget()
	s.mu.Unlock()
	if err := s.room(st, pod); err != nil {
		return withCause(fmt.Errorf("set up the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	chosen := make(map[string]bool, len(volumes))
	for _, name := range volumes {
		chosen[name] = true
	}
	results := s.each(ctx, pod, func(v *v1.Volume) bool { return len(volumes) == 0 || chosen[v.Name] }, s.setup)
	for name := range results {
		s.deps.Stale.Good(pod.UID, name) // what fails now the planner says
	}
	return s.record(ctx, st, pod, results)
}

// atOnce is how many volumes of a pod are set up at once of those that share their places: the
// files of each are held until they are written.
const atOnce = 16

// each has the chosen volumes made, many at once, as far as containers use them: what one
// would be made of need not be there for nobody.
func (s *Set) each(ctx context.Context, pod *v1.Pod, chosen func(*v1.Volume) bool, do func(context.Context, Request) (Made, error)) map[string]result {
	results := make(map[string]result, len(pod.Spec.Volumes))
	var mu sync.Mutex
	var wg sync.WaitGroup
	used := claims.Used(pod)
	mounts := sync.OnceValue(func() *mountIndex { return indexMounts(pod) })
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !chosen(v) {
			continue
		}
		if !used[v.Name] {
			mu.Lock()
			results[v.Name] = result{unused: true}
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			made, err := s.one(ctx, s.request(pod, v, mounts), do)
			mu.Lock()
			defer mu.Unlock()
			results[v.Name] = result{Made: made, err: err}
		})
	}
	wg.Wait()
	return results
}

// one has a volume made when there is a place for that.
func (s *Set) one(ctx context.Context, r Request, do func(context.Context, Request) (Made, error)) (Made, error) {
	ended := timeline.Start(ctx, timeline.Volume, r.Volume.Name, sourceOf(r.Volume))
	wanted, first := s.wantedSince(r.Pod.UID, r.Volume.Name)
	leave, err := s.lane(ctx, r.Pod.UID, laneOf(r.Volume))
	if err != nil {
		ended(err)
		return Made{}, err
	}
	defer leave()
	began := time.Now()
	made, err := s.contained(ctx, r, do)
	ended(err)
	plugin := s.shownMount(r.Pod.UID, r.Volume, &made)
	if made.device {
		s.deps.Metrics.Volume("map_volume", plugin, made.migrated, began, err)
		return made, err
	}
	s.deps.Metrics.Volume("volume_mount", plugin, made.migrated, began, err)
	if err == nil && first {
		s.deps.Metrics.VolumeMounted(plugin, wanted)
	}
	return made, err
}

// contained does something for a volume of a pod. What panics is that volume's failure.
func (s *Set) contained(ctx context.Context, r Request, do func(context.Context, Request) (Made, error)) (made Made, err error) {
	defer contain.Panic(ctx, fmt.Sprintf("volume %q of pod %s", r.Volume.Name, klog.KObj(r.Pod)), &err)
	return do(ctx, r)
}

// wantedSince is when a volume of a pod was first to be made; false when the pod has it already.
func (s *Set) wantedSince(uid types.UID, name string) (at time.Time, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		return time.Now(), true
	}
	if _, has := st.paths[name]; has {
		return time.Time{}, false
	}
	if at, is = st.since[name]; !is {
		at = time.Now()
		if st.since == nil {
			st.since = map[string]time.Time{}
		}
		st.since[name] = at
	}
	return at, true
}

// laneOf says with whose volumes one shares its places; empty for one for which nobody is waited
// for here: its driver or server, which may not answer, holds up its own volumes alone.
func laneOf(v *v1.Volume) string {
	switch {
	case isContent(v):
		return "content"
	case ofClaim(v), v.CSI != nil, v.NFS != nil, isDisk(v):
		return ""
	}
	return plugin(v)
}

// lane waits for one of the places of a pod that a volume shares with others.
func (s *Set) lane(ctx context.Context, uid types.UID, name string) (leave func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	st := s.known(uid)
	if st == nil {
		return nil, errTornDown
	}
	if leave, err = st.lanes.enter(ctx, name, atOnce); err != nil {
		return nil, fmt.Errorf("%d others of its pod are under way: %w", atOnce, err)
	}
	return leave, nil
}

// drive has a CSI driver make a volume.
func (s *Set) drive(ctx context.Context, r Request, driver string) (Made, error) {
	leave, err := s.lane(ctx, r.Pod.UID, "driver "+driver)
	if err != nil {
		return Made{}, err
	}
	defer leave()
	return s.deps.CSI.Setup(ctx, r)
}

// record keeps what was set up and plans the next refresh. What failed it returns, and
// keeps no record of: that is the planner's.
func (s *Set) record(ctx context.Context, st *podState, pod *v1.Pod, results map[string]result) error {
	var failed podstate.VolumeErrors
	var next time.Time
	s.mu.Lock()
	st.pod = pod
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if r, done := results[name]; done {
			if _, known := st.paths[name]; r.unused && !known {
				timeline.NoteWithin(ctx, timeline.Entry{What: "volume is not set up", Object: name, Detail: "no container mounts it"})
			}
			if err := st.recorded(name, r); err != nil {
				failed = append(failed, err)
			}
		}
		if at := st.renewal[name]; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	st.next = next
	s.mu.Unlock()
	if !next.IsZero() {
		s.refreshAt(pod.UID, time.Now().Add(max(time.Until(next), time.Second)))
	}
	return failed.OrNil()
}

// recorded keeps how one volume was made. One that could not be is renewed by whoever
// tries again, not by the clock.
func (st *podState) recorded(name string, r result) *podstate.VolumeError {
	delete(st.renewal, name)
	if r.err != nil {
		if _, known := st.paths[name]; !known && r.Path != "" {
			st.paths[name] = r.Path
		}
		failed := &podstate.VolumeError{Volume: name, Err: withCause(r.err), Stands: st.paths[name] != ""}
		if r.pv != nil {
			failed.PV = cmp.Or(r.called, r.pv.Name)
		}
		return failed
	}
	st.paths[name], st.projects[name] = r.Path, r.project
	delete(st.since, name)
	if !r.Refresh.IsZero() {
		st.renewal[name] = r.Refresh
	}
	return nil
}

// setup makes one volume.
func (s *Set) setup(ctx context.Context, r Request) (Made, error) {
	if err := component("volume name", r.Volume.Name); err != nil {
		return Made{}, err
	}
	d, err := s.driver(r.Volume)
	if err != nil {
		return Made{}, err
	}
	if r.Volume.CSI == nil && r.Volume.NFS == nil && !isDisk(r.Volume) {
		return d.Setup(ctx, r)
	}
	if isDisk(r.Volume) {
		return s.setupDisk(ctx, r)
	}
	// Its driver or server may take long, and its files are given to the pod's group.
	var before Made // by a previous run
	if path := filepath.Join(r.Dir, csiMount); r.Volume.CSI != nil {
		if mounted, err := s.deps.Mounter.Mounted(path); err == nil && mounted {
			before.Path = path
		}
	}
	return s.making(ctx, r.Pod.UID, r.Volume.Name, before, func(ctx context.Context, _ *chown) (Made, error) {
		if r.Volume.CSI != nil {
			return s.drive(ctx, r, r.Volume.CSI.Driver)
		}
		return d.Setup(ctx, r)
	})
}

// images are the volumes that the runtime mounts, whose images are pulled beside.
type images struct{}

// Setup has nothing to do.
func (images) Setup(context.Context, Request) (Made, error) { return Made{}, nil }

// Teardown finds nothing.
func (images) Teardown(_ context.Context, v Remains) error { return rmdir(v.Dir) }

// isContent says whether a volume holds files that podsync writes and renews.
func isContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// typeName is the field of the volume's source that is set.
func typeName(v *v1.Volume) string {
	switch {
	case v.CSI != nil:
		return "csi"
	case v.ISCSI != nil:
		return "iscsi"
	case v.FC != nil:
		return "fc"
	case v.FlexVolume != nil:
		return "flexVolume (deprecated in Kubernetes; use a CSI driver)"
	case v.GitRepo != nil:
		return "gitRepo (removed from Kubernetes; clone in an init container)"
	}
	return "(unknown to this node)"
}

// makeDir makes a directory of the pod's tree with exactly this mode.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil {
		if info, statErr := os.Lstat(dir); statErr != nil || !info.IsDir() {
			return err
		}
	}
	return os.Chmod(dir, mode)
}
